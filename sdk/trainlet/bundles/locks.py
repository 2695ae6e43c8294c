"""Locking packages with hashes, by uv, at submission: the lock is part of the bundle and of its digest."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainlet.core.errors import UserError


def lock(packages: Sequence[str] | Path) -> str:
    """Return the lock of requirements or of a requirements file; UserError with the resolver's words on failure."""
    if isinstance(packages, Path):
        try:
            text = packages.read_text()
        except OSError as error:
            raise UserError(f"packages={str(packages)!r} cannot be read: {error.strerror}.") from error
    else:
        text = "\n".join(packages) + "\n"
    return _lock(text, f"{sys.version_info.major}.{sys.version_info.minor}")


@functools.lru_cache(maxsize=64)
def _lock(text: str, python: str) -> str:
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
    done = subprocess.run(
        [*command, "--python-version", python], input=text, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise UserError(f"packages= could not be locked:\n{last}")
    return done.stdout
