"""A database that is restored from a backup, beside a store that went on: what is in the store is found, nothing hangs."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("kills")]

STEPS = 120
SUM = sum(range(STEPS))


class Backup:
    """The SQLite database of a home, copied while the platform runs, and put back after it was killed."""

    def __init__(self, home: Path, copy: Path) -> None:
        self._file = home / "state.db"
        self._copy = copy

    def take(self) -> None:
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    def restore(self) -> None:
        for suffix in ("-wal", "-shm"):
            self._file.with_name(self._file.name + suffix).unlink(missing_ok=True)
        self._copy.replace(self._file)


def checkpointed(run: Any, eventually: Callable[..., Any], epoch: int) -> Any:
    """Wait until the counting task has saved in an attempt."""

    def look() -> Any:
        task = next((task for task in run.tasks if task.node == "count"), None)
        return task is not None and any(note.epoch == epoch for note in task.checkpoints) and task

    return eventually(look)


def test_T3_a_restored_database_finds_the_checkpoints_that_are_ahead_of_it(
    alone: Any, faulty: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_DISPATCHER_LEASE_S", "60")  # who waits is not the question, and may be slow
    counted = tmp_path / "counted"
    backup = Backup(alone.path, tmp_path / "backup.db")
    run = faulty.long.run(steps=STEPS, path=str(counted))
    checkpointed(run, alone.eventually, 1)
    backup.take()
    for epoch in (1, 2):
        task = checkpointed(run, alone.eventually, epoch)
        os.kill(alone.worker_pid(task.attempts[-1].worker), signal.SIGKILL)
    task = checkpointed(run, alone.eventually, 3)
    saved = max(note.step for note in task.checkpoints)
    worker = alone.worker_pid(task.attempts[-1].worker)
    alone.kill_platform()
    os.kill(worker, signal.SIGKILL)
    backup.restore()

    result = run.result(120)

    assert result["sum"] == SUM
    assert result["began"] >= saved, "it went on from the newest checkpoint, which the backup does not know"
    ran = [line.split() for line in counted.read_text().splitlines()]
    again = [int(step) for _, step, process in ran if process == ran[-1][2]]
    assert again == list(range(result["began"], STEPS)), "and the attempt after it did each step once"
    rows = sorted(run.usage().rows, key=lambda row: (row.device, row.start_s))
    assert {row.epoch for row in rows} >= {run.task("count").view.epoch}
    shared = [(one, two) for one, two in pairwise(rows) if one.device == two.device and two.start_s < one.end_s]
    assert shared == [], "no second of a device is billed twice"
    assert run.usage().gpu_seconds == sum(row.end_s - row.start_s for row in rows)


def test_T2_a_worker_that_the_restored_database_does_not_know_is_fenced(
    alone: Any, faulty: Any, tmp_path: Path
) -> None:
    backup = Backup(alone.path, tmp_path / "backup.db")
    run = faulty.long.run(steps=STEPS)
    task = checkpointed(run, alone.eventually, 1)
    backup.take()
    os.kill(alone.worker_pid(task.attempts[-1].worker), signal.SIGKILL)
    checkpointed(run, alone.eventually, 2)
    alone.kill_platform()  # its worker of epoch 2 lives on
    backup.restore()
    assert run.result(120)["sum"] == SUM
    states = [attempt.state for attempt in run.task("count").attempts]
    assert states[-1] == "succeeded"
    assert states[0] == "lost"
