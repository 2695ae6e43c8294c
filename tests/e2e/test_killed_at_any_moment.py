"""SIGKILL of the worker, the platform, the dispatcher, or all at once: the work goes on and the result is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

import trainlet as tl

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("kills")]

STEPS = 60
SUM = sum(range(STEPS))


def training(run: Any) -> Any:
    """Wait until the counting task runs and has a checkpoint."""

    def look() -> Any:
        task = next((task for task in run.tasks if task.node == "count"), None)
        return task if task is not None and task.checkpoints and task.state == "running" else None

    return eventually(look)


def test_T3_a_killed_worker_is_replaced_and_the_work_resumes(alone: Any, faulty: Any) -> None:
    run = faulty.long.run(steps=STEPS)
    task = training(run)
    os.kill(alone.worker_pid(task.attempts[-1].worker), signal.SIGKILL)
    result = run.result(60)
    assert result["sum"] == SUM
    assert result["began"] > 0
    assert [attempt.state for attempt in run.task("count").attempts] == ["lost", "succeeded"]


def test_T3_a_killed_platform_is_started_again_and_takes_up_its_workers(
    alone: Any, faulty: Any, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_DATABASE_URL", database_url)
    run = faulty.long.run(steps=STEPS)
    training(run)
    alone.kill_platform()
    result = run.result(90)
    assert result["sum"] == SUM
    assert result["attempt"] == 1, "the running attempt went on"


def test_T3_everything_killed_at_once_resumes_from_another_process(alone: Any, faulty: Any, tmp_path: Path) -> None:
    script = tmp_path / "drive.py"
    script.write_text(
        f"import faulty; print(faulty.long.run(steps={STEPS}).id, flush=True); import time; time.sleep(300)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "code")}
    with subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        run = tl.runs.get(driver.stdout.readline().strip())
        task = training(run)
        for pid in (alone.platform_pid(), alone.worker_pid(task.attempts[-1].worker), driver.pid):
            os.kill(pid, signal.SIGKILL)
        driver.wait()
    again = tl.runs.get(run.id)
    eventually(lambda: again.state == "canceled")
    assert "nobody waits" in again.reason
    assert again.resume().result(90)["sum"] == SUM


def test_T6_a_run_whose_dispatcher_is_gone_stops_after_a_checkpoint(alone: Any, faulty: Any, tmp_path: Path) -> None:
    script = tmp_path / "drive.py"
    script.write_text("import faulty; print(faulty.long.run(steps=5000).id, flush=True); import time; time.sleep(300)")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "code")}
    with subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        run = tl.runs.get(driver.stdout.readline().strip())
        training(run)
        driver.kill()
        driver.wait()
    eventually(lambda: run.task("count").state == "canceled")
    view = run.task("count").view
    assert "nobody waits" in view.reason
    assert view.attempts[-1].state == "canceled"
    before, looked_s = run.usage(), time.monotonic()
    assert before.gpu_seconds > 0 and not any(row.open for row in before.rows)
    eventually(lambda: time.monotonic() > looked_s + 1.2)  # a lease that went on would have another whole second
    assert run.usage() == before


def test_T2_a_stale_worker_that_wakes_up_changes_nothing(alone: Any, faulty: Any, tmp_path: Path) -> None:
    run = faulty.long.run(steps=STEPS)
    task = training(run)
    pid = alone.worker_pid(task.attempts[-1].worker)
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: run.task("count").view.epoch == 2 and run.task("count").state == "running")
    os.kill(pid, signal.SIGCONT)
    result = run.result(60)
    assert result == {"sum": SUM, "began": result["began"], "attempt": 2}
    view = run.task("count").view
    assert [attempt.state for attempt in view.attempts] == ["lost", "succeeded"]
    later = [line.epoch for line in run.logs() if line.task == view.key]
    assert later == sorted(later), "no line of the old attempt after the new one's first"


def test_an_edited_source_does_not_change_what_a_later_attempt_runs(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    source = textwrap.dedent(
        """
        import time
        import trainlet as tl

        @tl.step(gpu="A100")
        def slow(*, ctx: tl.Context = tl.INJECTED) -> str:
            if ctx.attempt == 1:
                print("first", flush=True)
                time.sleep(300)
            return "as submitted"
        """
    )
    (folder / "edited.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    import importlib

    run = importlib.import_module("edited").slow.spawn()
    eventually(lambda: [line for line in run.logs() if line.text == "first"])
    (folder / "edited.py").write_text(source.replace("as submitted", "edited"))
    os.kill(alone.worker_pid(run.tasks[0].attempts[-1].worker), signal.SIGKILL)
    assert run.result(60) == "as submitted"


def test_T7_sigterm_of_the_worker_saves_hands_over_and_loses_no_line(alone: Any, faulty: Any, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    run = faulty.long.run(steps=STEPS, path=str(ran))
    task = training(run)
    os.kill(alone.worker_pid(task.attempts[-1].worker), signal.SIGTERM)
    result = run.result(60)
    assert result["sum"] == SUM
    assert [attempt.state for attempt in run.task("count").attempts] == ["preempted", "succeeded"]
    steps = [line.split()[:2] for line in ran.read_text().splitlines()]
    lines = [line for line in run.task("count").logs() if line.stream == "stdout"]
    assert {attempt for attempt, _ in steps} == {"1", "2"}
    assert [(str(line.epoch), line.text) for line in lines] == [(attempt, f"step {step}") for attempt, step in steps]


def test_a_cancelled_run_resumes_from_its_checkpoint(alone: Any, faulty: Any) -> None:
    run = faulty.long.run(steps=STEPS)
    training(run)
    run.cancel()
    with pytest.raises(tl.StepFailed, match="trainlet resume"):
        run.wait(30)
    eventually(lambda: run.task("count").state == "canceled")
    result = run.resume().result(60)
    assert result["sum"] == SUM and result["began"] > 0


def test_a_budget_stops_the_run_after_a_checkpoint(alone: Any, faulty: Any) -> None:
    run = faulty.long.run(steps=5000, budget="0.0007 USD")
    with pytest.raises(tl.StepFailed, match="budget"):
        run.wait(60)
    task = run.task("count").view
    assert task.state == "canceled" and task.checkpoints
