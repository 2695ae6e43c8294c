"""Pipelines compiled to a file, without anything of this machine in it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
TARGET = {"api": "https://trainlet.example", "image": "reg/dispatch:1", "step_image": "reg/worker:1"}


@pytest.fixture(scope="session")
def constructs() -> Any:
    """The module of sample pipelines."""
    sys.path.insert(0, str(HERE))
    try:
        return importlib.import_module("constructs")
    finally:
        sys.path.remove(str(HERE))


@pytest.fixture
def ir(tmp_path: Path) -> Callable[[Any], dict[str, Any]]:
    """Compile a pipeline and return its IR."""

    def compiled(pipeline: Any, **target: Any) -> dict[str, Any]:
        path = pipeline.compile(tmp_path / "pipeline.yaml", {**TARGET, **target})
        found: dict[str, Any] = next(yaml.safe_load_all(path.read_text()))
        return found

    return compiled


def normal(text: str) -> str:
    """Drop from IR what depends on the sources' digests and on the versions of Python and kfp."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text)
    text = re.sub(r'(,)?"python":"3\.\d+"(?(1)|,)', "", text)
    return re.sub(r"^sdkVersion: .*$", "sdkVersion: <version>", text, flags=re.MULTILINE)
