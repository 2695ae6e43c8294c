"""Versions that differ are a warning of the submission: before the platform knows the function, so before any run."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainlet.core.settings import Settings
from trainlet.core.specs import FunctionSpec
from trainlet.core.wire import ServiceInfo
from trainlet.sessions import Session

SOURCE = """
import numpy as np
import trainlet as tl

@tl.step
def norm(values: list) -> float:
    return float(np.linalg.norm(values))
"""


class Api:
    """What a session needs of the training API; remembers what was said when a function came."""

    def __init__(self, info: ServiceInfo) -> None:
        self.info = info
        self.said: list[warnings.WarningMessage] = []
        self.said_before: dict[str, list[str]] = {}

    def get_info(self) -> ServiceInfo:
        return self.info

    def put_function(self, spec: FunctionSpec) -> None:
        self.said_before[spec.name] = [str(one.message) for one in self.said]


def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **info: Any) -> Api:
    store = str(tmp_path / "store")
    api = Api(ServiceInfo(version="0", protocol=1, project="p", store_url=store, **info))
    monkeypatch.setattr("trainlet.client.connect", lambda settings: api)
    (tmp_path / "normed.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("normed", None)
    step = importlib.import_module("normed").norm
    session = Session(Settings.from_environment())
    with warnings.catch_warnings(record=True) as api.said:
        warnings.simplefilter("always")
        session.register({"norm": step})
        session.register({"norm": step})
    return api


def test_a_platform_with_other_versions_is_warned_of_once_before_the_function_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = registered(tmp_path, monkeypatch, python="3.99.1", packages={"numpy": "0.1"})
    (before,) = api.said_before.values()
    assert len(before) == len(api.said) == 2
    assert before[0].startswith("normed-norm: this is Python") and "3.99.1" in before[0]
    assert before[1] == f"normed-norm: it imports numpy {np.__version__} here, the workers have 0.1."


def test_a_platform_with_the_same_versions_is_not_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = registered(tmp_path, monkeypatch, packages={"numpy": np.__version__})
    assert list(api.said_before.values()) == [[]]
