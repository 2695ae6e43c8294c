"""`trainlet usage` by time and group, and second by second."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("cli")

FLOW = """
import time
import trainlet as tl


@tl.step(gpu="A100:2", tags={"team": "vision"})
def train() -> int:
    time.sleep(2.5)
    return 1
"""


def test_a_run_is_shown_second_by_second_and_summed_by_day_and_tag(trainlet: Any, write: Any) -> None:
    write("flow.py", FLOW)
    ran = trainlet("run", "flow.py:train", "--json")
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(trainlet("runs", "--json").stdout)[0]["id"]
    billed = json.loads(trainlet("usage", run_id, "--json").stdout)
    seconds = json.loads(trainlet("usage", "seconds", run_id, "--json").stdout)
    assert seconds["parts"] == billed["gpu_seconds"] * 5040 > 0
    assert seconds["cost_nano"] == billed["cost_nano"] > 0
    assert {(one["end_s"] - one["start_s"], one["group"]["step"]) for one in seconds["items"]} == {(1, "train")}
    found = trainlet("usage", "--for", "last 2 days", "-r", "d", "-g", "project,tag:team", "--tz", "Asia/Kolkata")
    assert found.stdout.splitlines()[0] == "from\tproject\ttag:team\tGPU-seconds\tcost"
    today = trainlet("usage", "--for", "today", "-g", "tag:team", "--json")
    assert {one["group"]["tag:team"] for one in json.loads(today.stdout)["items"]} == {"vision"}


def test_wrong_use_is_told_in_words(trainlet: Any) -> None:
    for arguments, words in (
        (("--for", "soon"), "is no range of time"),
        (("--for", "today", "--start", "2026-01-01"), "leave --start and --end out"),
        (("--start", "2026-02-01", "--end", "2026-01-01"), "is reversed"),
        (("--start", "2026-02-01", "--end", "2026-02-01"), "is empty"),
        (("--start", "2999-01-01", "--end", "2999-02-01"), "in the future"),
        (("--for", "today", "--tz", "Mars/Base"), "There is no time zone"),
        (("-g", "skuu"), "Did you mean 'sku'"),
        (("a", "b"), "Name one run"),
        (("seconds", "nobody-12345678"), "no run"),
    ):
        told = trainlet("usage", *arguments)
        assert told.returncode == 2 and words in told.stderr, (arguments, told.stderr)
