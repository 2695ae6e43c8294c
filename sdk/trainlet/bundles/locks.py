"""Locking packages with hashes, by uv, at submission: the lock is part of the bundle and of its digest."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainlet.core.errors import UserError

_OTHER_FILE = re.compile(r"^\s*(-r|-c|--requirement|--constraint)\b", re.MULTILINE)
LOCK_S = 600


def lock(packages: Sequence[str] | Path) -> str:
    """Return the lock of requirements or of a requirements file; UserError with the resolver's words on failure."""
    if isinstance(packages, Path):
        try:
            text = packages.read_text()
        except OSError as error:
            raise UserError(f"packages={str(packages)!r} cannot be read: {error.strerror}.") from error
        folder = packages.absolute().parent
    else:
        text, folder = "\n".join(packages) + "\n", Path.cwd()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    # What an included file says is not in the text, so such a lock is never taken from the cache.
    make = _lock.__wrapped__ if _OTHER_FILE.search(text) else _lock
    return make(text, python, folder)


@functools.lru_cache(maxsize=64)
def _lock(text: str, python: str, folder: Path) -> str:
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise UserError("packages= needs uv to lock them with hashes: pip install uv.")
    command = [
        uv,
        "pip",
        "compile",
        "-",
        "--generate-hashes",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--no-emit-index-url",
    ]
    try:
        done = subprocess.run(
            [*command, "--python-version", python],
            input=text,
            capture_output=True,
            text=True,
            timeout=LOCK_S,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"packages= could not be locked within {LOCK_S} s. Check the package index, then run again."
        ) from error
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise UserError(f"packages= could not be locked:\n{last}")
    return done.stdout
