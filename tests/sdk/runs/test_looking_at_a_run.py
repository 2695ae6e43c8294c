"""A run as a notebook sees it: its state, tasks, lines, outputs; from this process and from another."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl

pytestmark = [pytest.mark.timeout(150), pytest.mark.xdist_group("runs")]

SOURCE = """
import time
import trainlet as tl


@tl.step
def double(x: int) -> int:
    print(f"doubling {x}")
    return 2 * x


@tl.step
def odd_fails(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x


@tl.step
def notify(status: dict, note: str) -> str:
    error = status["error"]
    return f"{note}: {status['state']} {error.type if error else '-'} {status['failed']}"


@tl.step(gpu="A100", checkpoint=tl.Checkpoint(every=0.05))
def count(steps: int, *, ctx: tl.Context = tl.INJECTED) -> int:
    state = {"sum": 0}
    ctx.checkpoint.register(state=state)
    start = ctx.checkpoint.restore()
    for step in range(start.step if start else 0, steps):
        state["sum"] += step
        time.sleep(0.05)
        ctx.checkpoint.step(step + 1)
    return state["sum"]


@tl.pipeline
def doubled(xs: list[int]) -> dict:
    with tl.on_exit():
        notify(tl.run_status(), "end")
    ys = tl.each(xs, double)
    return {"ys": ys, "again": double(7)}


@tl.pipeline
def picky(xs: list[int]) -> list[int]:
    with tl.on_exit():
        notify(tl.run_status(), "end")
    return tl.each(xs, odd_fails)


@tl.pipeline
def counted(steps: int = 60) -> int:
    return double(count(double(steps)))
"""


@pytest.fixture
def mine(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module above, imported as a person would."""
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("mine", None)
    yield importlib.import_module("mine")
    sys.modules.pop("mine", None)


def test_outputs_tasks_lines_and_timeline(mine):
    run = mine.doubled.run(xs=[1, 2])
    assert run.wait(90) is run and run.state == "succeeded" and run.reason == "all tasks succeeded"
    assert run.outputs == run.result() == {"ys": [2, 4], "again": 14}
    assert sorted(task.key.removeprefix(f"{run.id}.") for task in run.tasks) == [
        "double-2", "double.0", "double.1", "notify",
    ]  # fmt: skip
    assert {line.text for line in run.logs()} == {"doubling 1", "doubling 2", "doubling 7"}
    assert [line.text for line in run.task("double.1").logs(follow=True)] == ["doubling 2"]
    assert run.task("double.1").result() == 4
    assert run.task("notify").result() == "end: succeeded - []"
    assert [entry.state for entry in run.timeline()["double.0"]][-2:] == ["running", "succeeded"]
    assert run.task("double-2").attempts[0].state == "succeeded"
    assert run.id in repr(run) and "double-2" in run._repr_html_()
    with pytest.raises(tl.UserError, match=r"2 tasks 'double'; name one of them: double\.0, double\.1"):
        run.task("double")
    with pytest.raises(tl.UserError, match="no task 'train'"):
        run.task("train")


def test_a_failure_names_the_task_and_its_exit_step_knew_it(mine):
    run = mine.picky.run(xs=[2, 3, 4])
    with pytest.raises(tl.StepFailed, match=r"odd_fails\.1 failed at mine.py:\d+: ValueError: 3 is odd") as caught:
        run.result(90)
    assert caught.value.kind == "user" and "raise ValueError" in caught.value.traceback
    assert f"trainlet logs {run.id}" in str(caught.value)
    assert run.state == "failed" and "odd_fails.1" in run.reason
    assert run.task("odd_fails.2").result() == 4
    assert run.task("notify").result() == "end: failed ValueError ['odd_fails.1']"
    with pytest.raises(tl.StepFailed, match="ValueError"):
        run.task("odd_fails.1").result()
    with pytest.raises(tl.UserError, match="failed, so it has no outputs"):
        run.outputs  # noqa: B018


def test_waiting_has_a_limit_and_the_run_goes_on(mine):
    run = mine.counted.run(steps=20)
    with pytest.raises(TimeoutError, match="it goes on"):
        run.wait(0.2)
    with pytest.raises(tl.UserError, match="driven by this process"):
        run.resume()
    assert run.result(90) == 2 * sum(range(40))


def test_another_object_of_the_same_run_waits_for_it_too(mine):
    run = mine.counted.run(steps=5)
    other = tl.runs.get(run.id)
    assert other.result(90) == 2 * sum(range(10))
    assert run.id in [one.id for one in tl.runs.list(5)]


def test_an_unknown_run_names_the_newest(mine):
    run = mine.doubled.run(xs=[])
    run.wait(90)
    with pytest.raises(tl.NotFoundError, match=f"The newest: {run.id}"):
        tl.runs.get("nobody-knows")


def test_a_resumed_run_repeats_nothing_that_succeeded(mine):
    run = mine.counted.run(steps=2000)

    def counting(task: Any) -> None:
        if task.node == "count" and task.checkpoints:
            run._client.cancel_run(run.id, "enough for today")

    run.on_change = counting
    with pytest.raises(tl.StepFailed, match=f"enough for today.*trainlet resume {run.id}"):
        run.wait(90)
    run.on_change = None
    before = run.task("double").view
    with pytest.raises(tl.UserError, match="budget"):
        run.resume(budget="much")
    again = tl.runs.get(run.id).resume(budget="1 USD")
    again.cancel()
    with pytest.raises(tl.StepFailed):
        again.wait(90)
    assert again.task("double").view.attempts == before.attempts
    assert again.view.budget_nano == 10**9


LEAVES = """
import mine
run = mine.counted.run(steps=5000)
print(run.id)
"""
LEAVES_SLOWLY = """
import atexit, contextlib

@atexit.register
def linger():  # the first task ends while the process ends: its driver can start no other one
    with contextlib.suppress(TimeoutError):
        run.wait(3)
"""


@pytest.mark.parametrize("lines", [LEAVES, LEAVES + LEAVES_SLOWLY], ids=["at once", "slowly"])
def test_a_process_that_ends_without_waiting_says_so_and_stops_its_run(mine, tmp_path, lines):
    script = tmp_path / "leaves.py"
    script.write_text(lines)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=os.environ,
        check=True,
    )
    name = done.stdout.strip()
    assert f"run {name} stops after a checkpoint" in done.stderr and "run.wait()" in done.stderr
    run = tl.runs.get(name)
    assert run.state == "canceled" and "the process that waited for it ended" in run.reason


def test_a_graph_that_cannot_run_leaves_no_run_behind(mine):
    from trainlet import runs
    from trainlet.core import graphs

    before = [run.id for run in tl.runs.list(50)]
    node = graphs.Node(id="a", function="f", digest="0" * 64, after=("a",))
    with pytest.raises(tl.UserError, match="cycle"):
        runs.start(graphs.Graph(name="g", nodes=(node,)), {}, {})
    assert [run.id for run in tl.runs.list(50)] == before


def test_what_cannot_travel_is_an_error_before_the_run_exists(mine):
    with pytest.raises(tl.UserError, match="xs"):
        mine.doubled.run(xs=[object()])
