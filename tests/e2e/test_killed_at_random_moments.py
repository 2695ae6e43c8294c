"""T3, T7 and M1 under a shower of kills: whatever dies, and whenever, the result, the lines and the bill stay right."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainlet as tl

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("random-kills")]

STEPS = 60


def child_of(worker: int) -> int | None:
    """Return the process that runs the user's code: the deepest descendant of the worker."""
    try:
        below = psutil.Process(worker).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    return max((one.pid for one in below), default=None)


def victims(home: Any, run: Any) -> dict[str, int]:
    """Return what can be killed now, by name."""
    found = {"platform": home.platform_pid()}
    for attempt in run.task("count").attempts[-1:]:
        if attempt.state == "running":
            worker = home.worker_pid(attempt.worker)
            found |= {"worker": worker, "child": child_of(worker)}
    return {name: pid for name, pid in found.items() if pid is not None and psutil.pid_exists(pid)}


def written(path: Path) -> int:
    """Return how many steps all attempts have run so far."""
    return len(path.read_text().splitlines()) if path.exists() else 0


def holds(run: Any, took_s: float) -> None:
    """Check what no kill may break: T1, T7 and M1."""
    attempts = run.task("count").attempts
    assert [one.epoch for one in attempts] == list(range(1, len(attempts) + 1)), "T1"
    assert [one.state for one in attempts].count("succeeded") == 1

    counted = Counter((line.epoch, line.text) for line in run.logs() if line.stream == "stdout")
    assert not [line for line, times in counted.items() if times > 1], "T7: each line is shown once"
    by_attempt: dict[int, list[int]] = {}
    for line in run.logs():
        if line.stream == "stdout":
            by_attempt.setdefault(line.epoch, []).append(int(line.text.removeprefix("step ")))
    for numbers in by_attempt.values():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "T7: in order, without a hole"

    rows = sorted((row.device, row.start_s, row.end_s) for row in run.usage().rows)
    for before, after in itertools.pairwise(rows):
        assert before[0] != after[0] or before[2] <= after[1], "M1: no second of a device is billed twice"
    assert run.usage().gpu_seconds <= took_s


@pytest.mark.parametrize("seed", range(4))
def test_T3_whatever_is_killed_at_random_the_run_ends_right(alone: Any, faulty: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "steps"
    begin = time.time()
    run = faulty.count.with_options(retries=20).spawn(STEPS, 0.05, str(path))
    killed: list[str] = []
    for _ in range(3):
        goal = written(path) + chance.randrange(1, 15)
        alone.eventually(lambda goal=goal: run.state != "running" or written(path) >= goal, 90)
        alive = victims(alone, run)
        for name in chance.sample(sorted(alive), k=chance.randrange(1, len(alive) + 1)):
            os.kill(alive[name], signal.SIGKILL)
            killed.append(name)
    result = run.result(120)
    took = time.time() - begin
    assert killed and result["sum"] == sum(range(STEPS)), killed
    holds(run, took)


@pytest.mark.parametrize("seed", range(2))
def test_T3_a_run_outlives_its_dispatchers_whatever_dies_with_them(
    alone: Any, faulty: Any, tmp_path: Path, seed: int
) -> None:
    """A kernel dies, alone or with all the rest, and the next one resumes the run, before or after it was given up."""
    steps = 240  # more than two leases' worth: attempts go on for one after their dispatcher
    chance = random.Random(seed)
    path = tmp_path / "steps"
    script = tmp_path / "drive.py"
    script.write_text(
        "import sys, faulty, trainlet as tl\n"
        "run = tl.runs.get(sys.argv[1]).resume() if len(sys.argv) > 1 else \\\n"
        f"    faulty.count.with_options(retries=20).spawn({steps}, 0.05, {str(path)!r})\n"
        "print(run.id, flush=True)\n"
        "run.wait(300)\n"
    )

    def dispatch(*known: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "code")}
        command = [sys.executable, str(script), *known]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        stack.enter_context(process)
        stack.callback(process.kill)
        return process

    begin = time.time()
    with contextlib.ExitStack() as stack:
        dispatcher = dispatch()
        assert dispatcher.stdout is not None
        run = tl.runs.get(dispatcher.stdout.readline().strip())
        for _ in range(2):
            goal = written(path) + chance.randrange(1, 15)
            alone.eventually(lambda goal=goal: written(path) >= goal, 90)
            others = victims(alone, run)
            for name in chance.sample(sorted(others), k=chance.randrange(len(others) + 1)):
                os.kill(others[name], signal.SIGKILL)
            dispatcher.kill()
            dispatcher.wait()
            if chance.random() < 0.5:
                alone.eventually(lambda: run.state == "canceled", 60)
                assert "nobody waits" in run.reason
            dispatcher = dispatch(run.id)
        assert dispatcher.wait(200) == 0
    assert run.result(10)["sum"] == sum(range(steps))
    holds(run, time.time() - begin)


def test_cancel_at_every_state_stops_the_run_and_the_bill(alone: Any, faulty: Any, tmp_path: Path) -> None:
    """T6: queued behind a busy device, dispatched to a worker that starts, running, and after the end."""
    path = tmp_path / "steps"
    four = faulty.count.with_options(gpu="A100:4")
    running = four.spawn(5000, 0.05, str(path))

    def cancelled(run: Any) -> None:
        run.cancel()
        with pytest.raises(tl.StepFailed, match="cancel"):
            run.wait(60)
        alone.eventually(lambda: run.tasks[0].state == "canceled")

    dispatched = faulty.add.with_options(name="fresh-worker").spawn(1)
    alone.eventually(lambda: dispatched.tasks and dispatched.tasks[0].state == "dispatched")
    cancelled(dispatched)
    queued = four.spawn(1, 0.0)
    alone.eventually(lambda: path.exists() and queued.tasks and queued.tasks[0].state == "queued")
    cancelled(queued)
    assert queued.tasks[0].attempts == [] and queued.usage().gpu_seconds == 0

    cancelled(running)
    assert all(not row.open for row in running.usage().rows)
    ended = faulty.add.spawn(1)
    assert ended.result(60) == 2
    ended.cancel()
    assert ended.state == "succeeded" and ended.result() == 2
    again = four.spawn(2, 0.0)
    assert again.result(60)["sum"] == 1, "the devices are free again"
