"""The images, built once for all tests by `build.sh`, and started without a container runtime."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SWITCH = "TRAINLET_TEST_IMAGE_BUILD"
_BUILT = "TRAINLET_TEST_IMAGE_FOLDER"


class Images:
    """Images in a storage of their own. `run` and `started` do what a runtime would: entry point, user, environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._containers: dict[str, str] = {}

    def buildah(self, *arguments: str) -> str:
        """Run buildah; returns what it prints."""
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def config(self, target: str) -> dict[str, Any]:
        """Return an image's configuration: User, Env, Entrypoint, Cmd, Labels."""
        described = json.loads(self.buildah("inspect", "--type", "image", f"localhost/trainlet-{target}"))
        found: dict[str, Any] = described["OCIv1"]["config"]
        return found

    def files(self, target: str) -> Path:
        """Return the root of an image's files."""
        return Path(self.buildah("mount", self._container(target)))

    def run(
        self, target: str, *arguments: str, entrypoint: list[str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run an image to its end."""
        command = self._run_command(target, {}, arguments, entrypoint)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    @contextlib.contextmanager
    def started(self, target: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Run an image until the block ends."""
        command = self._run_command(target, environment, arguments, None)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _run_command(
        self, target: str, environment: dict[str, str], arguments: tuple[str, ...], entrypoint: list[str] | None
    ) -> list[str]:
        config = self.config(target)
        options = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
        program = config["Entrypoint"] if entrypoint is None else entrypoint
        rest = list(arguments) or (config.get("Cmd") or [] if entrypoint is None else [])
        return self._command("run", "--isolation", "chroot", *options, self._container(target), "--", *program, *rest)

    def _container(self, target: str) -> str:
        if target not in self._containers:
            image = f"localhost/trainlet-{target}"
            self._containers[target] = self.buildah("from", "--pull-never", image)
        return self._containers[target]

    def _command(self, *arguments: str) -> list[str]:
        driver = (self.folder / "driver").read_text().strip()
        folders = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        return ["buildah", "--storage-driver", driver, *folders, *arguments]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Build the images, which takes minutes, or take those of a folder where `build.sh` has built them."""
    if _BUILT in os.environ:
        yield Images(Path(os.environ[_BUILT]))
        return
    if os.environ.get(_SWITCH) != "1":
        pytest.skip(f"{_SWITCH} is not 1: building images needs root, buildah and debootstrap, and takes minutes")
    folder = tmp_path_factory.mktemp("images")
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([str(Path(__file__).parent / "build.sh"), str(folder)], env=environment, check=True)
    built = Images(folder)
    yield built
    built.buildah("rm", "--all")  # it unmounts what was mounted
    shutil.rmtree(folder)
