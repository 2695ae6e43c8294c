"""`trainlet cost estimate`, and the estimates beside `check` and `trigger test`."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("cli")

FILE = """
import trainlet as tl


@tl.step(gpu="A100:2")
def train(n: int) -> int:
    return n


@tl.on_event("example.made", params={"n": "$.data.n"})
@tl.pipeline
def flow(n: int = 1) -> None:
    train(n)
"""


def test_a_file_is_estimated_before_it_ever_ran(trainlet: Any, write: Any) -> None:
    write("flow.py", FILE)
    told = trainlet("cost", "estimate", "flow.py:flow")
    assert told.returncode == 0, told.stderr
    assert "not known for train, which never ran" in told.stdout
    found = json.loads(trainlet("cost", "estimate", "flow.py:flow", "-d", "train=1h", "--json").stdout)
    (row,) = found["rows"]
    assert (row["seconds"], row["gpu_seconds"], row["basis"], found["complete"]) == (3600, 7200, "given", True)
    assert row["cost_nano"] == row["gpus"][0]["nano_per_s"] * 3600 == found["cost_nano"] > 0
    step = json.loads(trainlet("cost", "estimate", "flow.py:train", "-d", "1h", "--tasks", "5", "--json").stdout)
    assert step["cost_nano"] == 5 * found["cost_nano"]


def test_wrong_use_is_told_in_words(trainlet: Any, write: Any) -> None:
    write("flow.py", FILE)
    for arguments, words in (
        (("flow.py:flow", "-d", "trian=1h"), "Did you mean 'train'"),
        (("flow.py:flow", "-d", "1h", "-d", "2h"), "given for all tasks once"),
        (("flow.py:flow", "-d", "soon"), "is no duration"),
        (("flow.py:flow", "--tasks", "2"), "--tasks is for a step"),
        (("flow.py:train", "-p", "n=2"), "is a step"),
    ):
        told = trainlet("cost", "estimate", *arguments)
        assert told.returncode == 2 and words in told.stderr, told.stderr


def test_a_check_and_a_dry_run_of_a_trigger_say_the_cost_too(trainlet: Any, write: Any) -> None:
    write("flow.py", FILE)
    checked = trainlet("check", "flow.py:flow")
    assert "cost: not known for train, which never ran" in checked.stdout, checked.stderr
    write("made.json", json.dumps({"type": "example.made", "source": "/x", "id": "1", "data": {"n": 3}}))
    tried = trainlet("trigger", "test", "flow.py", "made.json")
    assert tried.returncode == 0, tried.stderr
    assert "not known for train, which never ran: give a duration" in tried.stdout
