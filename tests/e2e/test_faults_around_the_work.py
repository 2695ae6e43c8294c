"""The API, the database and the store fail while a step trains: nothing is lost, nothing is doubled, and it is said."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("around")]

Start = Callable[..., subprocess.Popen[str]]


def steps_in(path: Path) -> list[str]:
    """Return what the counting step has written so far: a line `attempt step` for every step that it ran."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def api(alone: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start the training API as an operator does: a process that no client can revive."""
    monkeypatch.setenv("TRAINLET_ORPHAN_S", "150")
    started: list[subprocess.Popen[str]] = []

    def start(prelude: str = "") -> subprocess.Popen[str]:
        code = f"{prelude}\nimport sys; from trainlet_functions.api.__main__ import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "--home", str(alone.path), "--stay"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)
        started.append(process)
        alone.eventually(lambda: alone.platform_pid() == process.pid, 180)
        url, token = alone.address()
        monkeypatch.setenv("TRAINLET_API", url)
        monkeypatch.setenv("TRAINLET_TOKEN", token)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_T3_the_api_is_down_for_a_minute_and_training_goes_on(
    alone: Any, faulty: Any, api: Start, tmp_path: Path
) -> None:
    first = api()
    path = tmp_path / "steps"
    run = faulty.count.spawn(1200, 0.05, str(path))
    alone.eventually(lambda: len(steps_in(path)) > 20)
    first.kill()
    first.wait()
    down, began = time.monotonic(), len(steps_in(path))
    alone.eventually(lambda: time.monotonic() - down > 60, 90)
    went_on = len(steps_in(path)) - began
    assert went_on > 300, "the step trained while nobody could be told"
    api()
    result = tl.runs.get(run.id).result(120)
    assert result == {"sum": sum(range(1200)), "began": 0, "attempt": 1}
    lines = [line.text for line in tl.runs.get(run.id).logs() if line.stream == "stdout"]
    assert lines == [f"step {step}" for step in range(1200)]
    rows = tl.runs.get(run.id).usage().rows
    assert sum(row.seconds for row in rows) >= 60, "the minute is metered"


def test_a_database_that_somebody_locks_delays_and_loses_nothing(alone: Any, faulty: Any, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    run = faulty.count.spawn(200, 0.05, str(path))
    alone.eventually(lambda: len(steps_in(path)) > 5)
    lock = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); time.sleep(300)"
    )
    command = [sys.executable, "-c", lock, str(alone.path / "state.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        before = len(steps_in(path))
        alone.eventually(lambda: len(steps_in(path)) > before + 120, 60)  # six seconds: longer than a lease
        holder.kill()
    assert run.result(120)["sum"] == sum(range(200))
    lines = [line for line in run.logs() if line.stream == "stdout"]
    shown = Counter((line.epoch, line.text) for line in lines)
    assert set(shown.values()) == {1}, "each line is shown once"
    assert {text for _, text in shown} == {f"step {step}" for step in range(200)}


@pytest.fixture
def frozen(alone: Any) -> Iterator[Callable[[bool], None]]:
    """Make the store read-only and writable again: a mount for root, whom permissions do not stop."""
    store = alone.path / "store"
    store.mkdir(parents=True)
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(store)], check=True)

    def freeze(frozen: bool) -> None:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-o", f"remount,{'ro' if frozen else 'rw'}", str(store)], check=True)
            return
        for folder, _, _ in os.walk(store):
            Path(folder).chmod(0o500 if frozen else 0o700)

    yield freeze
    freeze(False)
    if os.geteuid() == 0:
        alone.end()
        subprocess.run(["umount", "-l", str(store)], check=True)


def test_a_store_that_turns_read_only_fails_the_step_in_words_and_the_run_resumes(
    alone: Any, faulty: Any, frozen: Callable[[bool], None], tmp_path: Path
) -> None:
    path = tmp_path / "steps"
    run = faulty.count.spawn(100, 0.05, str(path))
    alone.eventually(lambda: run.tasks and run.tasks[0].checkpoints)
    frozen(True)
    with pytest.raises(tl.StepFailed, match=r"(?s)checkpoint.*[Rr]ead-only.*trainlet resume"):
        run.wait(60)
    frozen(False)
    result = run.resume().result(60)
    assert result["sum"] == sum(range(100)) and result["began"] > 0


def test_a_read_only_store_refuses_new_code_in_words(alone: Any, faulty: Any, frozen: Callable[[bool], None]) -> None:
    frozen(True)
    with pytest.raises(tl.TrainletError, match=r"store .*[Rr]ead-only.*writable folder"):
        faulty.add.remote(1)
    frozen(False)
    assert faulty.add.remote(1) == 2


@pytest.mark.parametrize(("theirs", "old"), [(2, "trainlet where you call from"), (0, "the training API")])
def test_an_api_of_another_protocol_says_which_side_is_old(
    alone: Any, faulty: Any, api: Start, theirs: int, old: str
) -> None:
    api(f"from trainlet.core import wire; wire.PROTOCOL = {theirs}")
    with pytest.raises(tl.TrainletError, match=f"protocol 1.*speaks {theirs}. Update {old}"):
        faulty.add.remote(1)
