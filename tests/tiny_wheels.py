"""A tiny package in two versions, and nothing from any network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainlet.bundles import locks


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


def offer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have uv find versions 1.0 and 2.0 of `tinything`, and nothing else; returns the folder of the wheels."""
    wheels = folder / "wheels"
    make_wheel(wheels, "1.0")
    make_wheel(wheels, "2.0")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    locks._lock.cache_clear()
    return wheels
