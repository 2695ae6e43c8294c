"""The platform is killed and nobody starts it again: its workers save and go, and the next platform goes on from there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet_functions.checkpoints.listing import list_checkpoints

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("kills")]

DRIVER = """
import sys, time, faulty
print(faulty.patient.spawn(100_000, sys.argv[1]).id, flush=True)
time.sleep(300)
"""


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_T6_workers_without_a_platform_save_and_end_and_the_next_platform_resumes(
    alone: Any, faulty: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_ORPHAN_S", "1")
    at = tmp_path / "at"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "code")}
    command = [sys.executable, "-c", DRIVER, str(at)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        name = driver.stdout.readline().strip()
        alone.eventually(lambda: at.exists() and at.read_text() not in ("", "0"), 90)
        (task,) = tl.runs.get(name).tasks
        worker = alone.worker_pid(task.attempts[-1].worker)
        driver.kill()
        driver.wait()
    alone.kill_platform()
    alone.eventually(lambda: gone(worker), 90)

    saved = list_checkpoints(open_store(str(alone.path / "store")), f"runs/{task.key}")
    assert [(note.epoch, note.reason, note.step) for note in saved] == [(1, "preempted", int(at.read_text()) + 1)]

    assert tl.runs.get(name).resume().result(120) == saved[0].step
    said = (alone.path / "platform.log").read_text()
    assert "took up 1 running attempts of an earlier platform" in said
