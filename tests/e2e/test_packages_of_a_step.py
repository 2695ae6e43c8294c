"""A step with packages of its own runs on a worker with exactly these, installed once for all of its attempts."""

from __future__ import annotations

import importlib
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainlet.bundles import locks

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("around")]

SOURCE = """
import sys
import trainlet as tl

@tl.step(packages=["tinything==1.0"], retries=1)
def version(path: str, *, ctx: tl.Context = tl.INJECTED) -> list[str]:
    import tinything
    with open(path, "a") as file:
        file.write(sys.prefix + "\\n")
    if ctx.attempt == 1:
        raise ValueError("again, please")
    return [tinything.VERSION, tinything.__file__]
"""


def make_wheel(folder: Path, version: str) -> None:
    """Write a wheel with one module that says its version."""
    folder.mkdir(exist_ok=True)
    info = f"tinything-{version}.dist-info"
    files = {
        "tinything.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tinything\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"tinything-{version}-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)


def test_a_step_has_its_packages_on_a_worker_and_its_attempts_share_one_environment(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("1.0", "2.0"):
        make_wheel(tmp_path / "wheels", number)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    locks._lock.cache_clear()
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "packed.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("packed", None)
    prefixes = tmp_path / "prefixes"

    run = importlib.import_module("packed").version.spawn(str(prefixes))
    said, file = run.result(150)

    assert said == "1.0"
    environments = alone.path / "environments"
    assert Path(file).is_relative_to(environments)
    first, second = prefixes.read_text().splitlines()
    assert first == second and Path(first).parent == environments
    folders = [path for path in environments.iterdir() if path.is_dir() and not path.is_symlink()]
    kept = [path for path in folders if path.name != "downloads"]
    assert kept == [Path(first)]
    assert [attempt.state for attempt in run.tasks[0].attempts] == ["failed", "succeeded"]
