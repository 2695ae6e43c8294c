"""C1: what a trainer has staged is committed for it when it cannot do so itself: stopped, stuck in a call, or dead."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("kills")]


@pytest.mark.parametrize("how", ["stopped", "in a call"])
def test_I12_C1_sigterm_commits_the_newest_staged_step_of_a_trainer_that_cannot_answer(
    alone: Any, faulty: Any, tmp_path: Path, how: str
) -> None:
    sigterm_to_a_stuck_trainer(alone, faulty, tmp_path, how, 1)


@pytest.mark.parametrize("times", [2, 25])
def test_I13_C1_a_storm_of_sigterms_is_one_stop(alone: Any, faulty: Any, tmp_path: Path, times: int) -> None:
    sigterm_to_a_stuck_trainer(alone, faulty, tmp_path, "stopped", times)


def sigterm_to_a_stuck_trainer(alone: Any, faulty: Any, tmp_path: Path, how: str, times: int) -> None:
    path = tmp_path / "mark"
    run = faulty.stuck.spawn(how, str(path))
    alone.eventually(path.exists, 90)
    worker = alone.worker_pid(run.tasks[0].attempts[-1].worker)
    for _ in range(times):
        os.kill(worker, signal.SIGTERM)
    result = run.result(120)
    assert result["sum"] == sum(range(10)) and result["attempt"] == 2
    assert result["began"] >= 3, "at most what lies between two copies is done again"
    notes = run.tasks[0].checkpoints
    assert [note.reason for note in notes if note.epoch == 1].count("preempted") == 1


@pytest.mark.parametrize(("how", "last"), [("evaluating", 2), ("saving", 2), ("restoring", 3)])
def test_I13_C1_sigterm_in_the_middle_of_something_loses_nothing(
    alone: Any, faulty: Any, tmp_path: Path, how: str, last: int
) -> None:
    path = tmp_path / "mark"
    run = faulty.interrupted.spawn(how, str(path))
    alone.eventually(path.exists, 90)
    os.kill(alone.worker_pid(run.tasks[0].attempts[-1].worker), signal.SIGTERM)
    result = run.result(120)
    assert result["sum"] == sum(range(10)) and result["attempt"] == last
    assert result["began"] >= 3, "at most what lies between two copies is done again"
    assert {note.epoch for note in run.tasks[0].checkpoints} <= {1, last}, "an attempt that only restored saved nothing"


def test_I12_C1_ranks_commit_the_newest_step_that_all_have_when_one_cannot_answer(
    alone: Any, faulty: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mark"
    run = faulty.stuck_rank.spawn("stopped", str(path))
    alone.eventually(path.exists, 90)
    os.kill(alone.worker_pid(run.tasks[0].attempts[-1].worker), signal.SIGTERM)
    result = run.result(120)
    assert result["attempt"] == 2 and 2 <= result["began"] <= 6
    notes = run.tasks[0].checkpoints
    assert any(note.epoch == 1 and note.step == result["began"] for note in notes)
