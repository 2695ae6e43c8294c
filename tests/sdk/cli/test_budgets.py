"""`trainlet budgets`, and what a person sees of a run that reached one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PIPELINE = """
import time
import numpy as np
import trainlet as tl

@tl.step(gpu="A100")
def burn(ctx: tl.Context) -> int:
    ck = ctx.checkpoint
    ck.register(weights=np.zeros(4))
    ck.restore()
    for number in range(10_000):
        time.sleep(0.05)
        ck.step(number + 1)
    return 1
"""


def test_budgets_are_set_listed_and_removed(trainlet: Any) -> None:
    assert "There is no budget" in trainlet("budgets").stdout
    made = trainlet("budgets", "set", "team", "--limit", "500 USD", "--strict")
    assert made.returncode == 0, made.stderr
    assert "500.0000 USD\tmonth\tstop (strict)\t0.0000 USD" in made.stdout
    found = json.loads(trainlet("budgets", "ls", "--json").stdout)
    assert [(one["name"], one["covers"], one["state"]) for one in found] == [("team", "default", "open")]
    assert trainlet("budgets", "rm", "team").returncode == 0
    again = trainlet("budgets", "rm", "team")
    assert again.returncode == 2 and "There is no budget 'team'" in again.stderr


def test_wrong_limits_say_how_to_write_them(trainlet: Any) -> None:
    for arguments, words in (
        (("set", "Team", "--limit", "5 USD"), "is no name of a budget"),
        (("set", "team", "--limit", "five"), "GPU-hours"),
        (("set", "team", "--limit", "5 USD", "--sku", "A1000"), "Did you mean"),
        (("set", "team", "--limit", "5 USD", "--strict", "--action", "warn"), "strict goes with action=stop"),
        (("set", "team", "--limit", "5 USD", "--for", "te*am"), "covers"),
    ):
        told = trainlet("budgets", *arguments)
        assert told.returncode == 2 and words in told.stderr, told.stderr


def test_a_run_that_reaches_its_budget_prints_the_line_that_resumes_it(trainlet: Any, tmp_path: Path) -> None:
    (tmp_path / "burning.py").write_text(PIPELINE)
    told = trainlet("run", "burning.py", "--budget", "0.0005 USD")
    assert told.returncode == 1
    assert "the budget of the run is spent" in told.stderr
    assert "trainlet resume burning-burn-" in told.stderr and '--budget "0.001 USD"' in told.stderr
