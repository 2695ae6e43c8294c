"""The disk of a home is full while a step trains: it is told, nothing is lost, and with room again it goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainlet as tl
from trainlet.core.errors import PlatformError

STEPS = 120


def steps_in(path: Path) -> list[tuple[int, int]]:
    """Return (step, process) of what was run so far, over all attempts."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(step), int(pid)) for _, step, pid in lines]


@pytest.fixture
def fill(alone: Any) -> Iterator[Callable[[bool], None]]:
    """A home on a small disk of its own, to be filled and emptied."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    alone.path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(alone.path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    ballast = alone.path / "ballast"

    def fill(full: bool) -> None:
        if not full:
            ballast.unlink(missing_ok=True)
            return
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))

    yield fill
    alone.end()
    subprocess.run(["umount", "-l", str(alone.path)], check=True)


def test_a_full_disk_is_told_while_it_lasts_and_loses_nothing(
    alone: Any, faulty: Any, tmp_path: Path, fill: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "steps"
    run = faulty.count.spawn(STEPS, 0.05, str(path))
    alone.eventually(lambda: len(steps_in(path)) > 25)  # more than a second, which is what a bill counts
    fill(True)
    alone.eventually(lambda: run.state == "running" and "disk is full" in caplog.text, 60)
    with pytest.raises(PlatformError, match="No space left on device; free some space or set TRAINLET_HOME"):
        faulty.add.spawn(1)
    trainer = steps_in(path)[-1][1]
    alone.eventually(lambda: not psutil.pid_exists(trainer), 60)  # three saves in a row failed
    fill(False)
    with pytest.raises(tl.StepFailed, match=r"(?s)Saving a checkpoint failed.*No space left.*trainlet resume"):
        run.result(120)
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1

    resumed = tl.runs.get(run.id).resume()
    output = resumed.result(120)
    assert output["sum"] == sum(range(STEPS)) and output["began"] > 0
    assert sorted({step for step, _ in steps_in(path)}) == list(range(STEPS))
    assert {row.epoch for row in resumed.usage().rows} == set(range(1, output["attempt"] + 1))
    assert faulty.add.spawn(1).result(60) == 2
