"""Locked packages, installed once per machine into an environment that is named by its lock.

The environment is made beside the worker's own and sees its packages (trainlet itself among them) behind its own; the
locked ones come first. It is made under a name of its own and published by one rename of a link: what is seen is whole,
also where several pods share the folder and its file locks cannot be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import sha256_hex

_LOG = logging.getLogger(__name__)
INSTALL_S = 3600
TRIES = 2  # a download that broke off, or that a proxy cut short, may be whole the second time
_LOOK_S = 0.2
_FULL = ("no space left on device", "disk quota exceeded", "os error 28", "os error 122")


class DiskFull(PlatformError):
    """Raised when the packages do not fit where they were to be installed."""


def install(
    home: Path, lock_text: str, *, cache: Path | None = None, given_up: Callable[[], bool] | None = None
) -> Path:
    """Return the Python of the environment for a lock (hashes required), made if need be; safe for many at once.

    With a `cache`, a folder that outlives this pod, it is made there, and in `home` only when the cache is full or cannot
    be written. Raises UserError with the installer's last lines when a package cannot be installed, DiskFull when there is
    no room, PlatformError when `given_up()` says not to go on.
    """
    stop = given_up or (lambda: False)
    if cache is not None:
        try:
            return _installed(cache, lock_text, stop, keep=True)
        except DiskFull as error:
            _LOG.warning("%s They are installed for this worker alone.", error)
        except OSError as error:
            _LOG.warning("the cache %s cannot be used: %s. Packages are installed for this worker alone.", cache, error)
    return _installed(home, lock_text, stop, keep=False)


def _installed(folder: Path, lock_text: str, stop: Callable[[], bool], *, keep: bool) -> Path:
    digest = sha256_hex(lock_text.encode())
    root = folder / "environments"
    root.mkdir(parents=True, exist_ok=True)
    published = root / digest
    if not published.exists():
        with _alone(root / f"{digest}.lock", stop):
            if not published.exists():
                _sweep(root, digest)
                _publish(root, digest, lock_text, _downloads(root) if keep else {}, stop)
    return published.resolve() / "bin" / "python"


@contextlib.contextmanager
def _alone(path: Path, stop: Callable[[], bool]) -> Iterator[None]:
    """Wait until nobody else installs the same; on a file system without locks everybody installs for themselves."""
    with path.open("a") as guard:
        while True:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop():
                    raise PlatformError("It was given up while another worker installed the packages.") from None
                time.sleep(_LOOK_S)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    raise
                break
        yield


def _sweep(root: Path, digest: str) -> None:
    """Remove what somebody began so long ago that they cannot be at it any more."""
    for left in root.glob(f"{digest}.*"):
        with contextlib.suppress(OSError):
            if left.is_dir() and time.time() - left.stat().st_mtime > INSTALL_S:
                shutil.rmtree(left, ignore_errors=True)


def _downloads(root: Path) -> dict[str, str]:
    """Return what keeps downloads beside the environments: the next lock may want the same ones."""
    return {"UV_CACHE_DIR": str(root / "downloads" / "uv"), "PIP_CACHE_DIR": str(root / "downloads" / "pip")}


def _publish(root: Path, digest: str, lock_text: str, caches: dict[str, str], stop: Callable[[], bool]) -> None:
    mine = root / f"{digest}.{secrets.token_hex(6)}"
    link = mine.with_suffix(f"{mine.suffix}.link")
    try:
        _make(mine, lock_text, caches, stop)
        link.symlink_to(mine.name)
        if not (root / digest).exists():  # somebody without a lock may have been faster
            link.replace(root / digest)
            return
        shutil.rmtree(mine, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(mine, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(root) from error
        raise
    finally:
        link.unlink(missing_ok=True)


def _make(target: Path, lock_text: str, caches: dict[str, str], stop: Callable[[], bool]) -> None:
    """Make a whole environment, or raise."""
    for number in range(TRIES):
        shutil.rmtree(target, ignore_errors=True)
        try:
            _run([sys.executable, "-m", "venv", "--without-pip", str(target)], caches, stop)
            lock = target / "requirements.lock"
            lock.write_text(lock_text)
            python = target / "bin" / "python"
            _run([*_installer(python), "--require-hashes", "-r", str(lock)], caches, stop)
            break
        except UserError:
            if number + 1 == TRIES:
                raise
    _see_the_worker(target)


def _installer(python: Path) -> list[str]:
    uv = find_uv()
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--python", str(python)]
    return [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]


def find_uv() -> str | None:
    """Return the path of uv: beside this Python, or on PATH."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv")


def _see_the_worker(target: Path) -> None:
    """Let the environment import what the worker has, after its own packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = target / "lib" / version / "site-packages"
    theirs = [*site.getsitepackages(), sysconfig.get_paths()["purelib"]]
    lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(theirs)]
    (own / "zz_trainlet_worker.pth").write_text("\n".join(lines) + "\n")


def _run(command: list[str], caches: dict[str, str], stop: Callable[[], bool]) -> None:
    """Run an installer. A package's own build code runs in it: the worker's tokens and secrets are none of its business."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
    end_s = time.monotonic() + INSTALL_S
    arguments: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    with subprocess.Popen(command, text=True, env={**environment, **caches}, **arguments) as process:
        while True:
            try:
                said, _ = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if stop() or time.monotonic() > end_s:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    if time.monotonic() <= end_s:
                        raise PlatformError("It was given up while its packages were installed.") from None
                    words = f"The locked packages were not installed within {INSTALL_S} s. Start the step again."
                    raise UserError(words) from None
    if process.returncode != 0:
        if any(word in said.lower() for word in _FULL):
            raise OSError(errno.ENOSPC, said.strip().splitlines()[-1])
        last = "\n".join(said.strip().splitlines()[-8:])
        raise UserError(f"The locked packages could not be installed:\n{last}")


def _full(root: Path) -> DiskFull:
    free = shutil.disk_usage(root).free / 2**20
    return DiskFull(
        f"The locked packages do not fit into {root}, where {free:.0f} MiB are free. Remove what nobody needs there "
        "(environments that were made long ago can be made again), or give it more room."
    )
