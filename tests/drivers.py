"""A stand-in for NVIDIA's driver, compiled for NVIDIA's own Python bindings: their ABI is what is tested."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "functions" / "devices" / "libnvidia_ml.c"


def compiled(folder: Path) -> Path:
    """Put `libnvidia-ml.so.1` into a folder for LD_LIBRARY_PATH; skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler (apt-get install gcc)")
    library = str(folder / "libnvidia-ml.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(SOURCE)], check=True, timeout=60)
    return folder
