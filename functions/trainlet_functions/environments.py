"""Locked packages, installed once per machine into an environment that is named by its lock.

The environment is made beside the worker's own and sees its packages (trainlet itself among them) behind its own; the
locked ones come first. A marker file is written last: a half-made environment is never used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

from trainlet.core.errors import UserError
from trainlet.core.models import sha256_hex

INSTALL_S = 3600


def install(home: Path, lock_text: str) -> Path:
    """Return the Python of the environment for a lock (hashes required), made if need be; safe for many at once.

    Raises UserError with the installer's last lines when a package cannot be installed.
    """
    digest = sha256_hex(lock_text.encode())
    root = home / "environments"
    root.mkdir(parents=True, exist_ok=True)
    target = root / digest
    python = target / "bin" / "python"
    with (root / f"{digest}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if (target / ".complete").exists():
            return python
        shutil.rmtree(target, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(target)])
        lock = target / "requirements.lock"
        lock.write_text(lock_text)
        _run([*_installer(python), "--require-hashes", "-r", str(lock)])
        _see_the_worker(target)
        (target / ".complete").touch()
    return python


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


def _run(command: list[str]) -> None:
    """Run an installer. A package's own build code runs in it: the worker's tokens and secrets are none of its business."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"The locked packages were not installed within {INSTALL_S} s. Start the step again."
        ) from error
    if done.returncode != 0:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise UserError(f"The locked packages could not be installed:\n{last}")
