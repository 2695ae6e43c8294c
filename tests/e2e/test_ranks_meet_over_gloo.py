"""C1: the ranks of a CPU step find each other by the environment that the worker gives, and go on when one is killed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def gloo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "code"))
    sys.modules.pop("gloo", None)
    return importlib.import_module("gloo")


def test_C1_two_ranks_train_together_and_resume_bit_for_bit_after_one_is_killed(alone: Any, gloo: Any) -> None:
    killed = gloo.train.spawn(8, 6).result(180)
    assert (killed["world"], killed["sum"]) == (2, 3.0)
    assert killed["attempt"] == 2 and 1 <= killed["began"] <= 5, "from a checkpoint of both"
    straight = gloo.train.spawn(8, 0).result(180)
    assert (straight["attempt"], straight["began"]) == (1, 0)
    assert killed["weights"] == straight["weights"]
