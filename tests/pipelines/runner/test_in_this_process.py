"""`.local()`: plain calls with a context, so that a debugger and a traceback show the person's own code."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainlet as tl

attempts: list[int] = []


@tl.step
def inc(x: int) -> int:
    return x + 1


@tl.step
def thread_name(x: int) -> str:
    return threading.current_thread().name


@tl.step
def fails(x: int) -> int:
    return x // 0


@tl.step(retries=2)
def third_time(*, ctx: tl.Context = tl.INJECTED) -> int:
    attempts.append(ctx.attempt)
    if ctx.attempt < 3:
        raise ValueError("not yet")
    return ctx.attempt


def test_a_single_step_runs_in_the_calling_thread_where_a_debugger_is():
    @tl.pipeline
    def one() -> str:
        return thread_name(1)

    assert one.local() == threading.current_thread().name


def test_independent_steps_run_at_the_same_time():
    together = threading.Barrier(2, timeout=20)

    @tl.step
    def meet(x: int) -> int:
        together.wait()
        return x

    @tl.pipeline
    def two() -> list[int]:
        return [meet(1), meet(2)]

    assert two.local() == [1, 2]


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_steps_than_max_parallel_run_at_once(most: int):
    lock, counts, names = threading.Lock(), [0, 0], set()
    both = threading.Barrier(most, timeout=20)

    @tl.step
    def counted(x: int) -> int:
        with lock:
            names.add(threading.current_thread().name)
            counts[0] += 1
            counts[1] = max(counts)
        both.wait()
        with lock:
            counts[0] -= 1
        return x

    @tl.pipeline
    def four() -> list[int]:
        return [counted(one) for one in range(4)]

    assert four.local(max_parallel=most) == [0, 1, 2, 3]
    assert counts == [0, most]
    assert (threading.current_thread().name in names) == (most == 1), "alone they run where a debugger is"


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "2"])
def test_a_max_parallel_that_is_none_is_refused(most: Any):
    @tl.pipeline
    def one() -> int:
        return inc(1)

    with pytest.raises(tl.UserError, match=r"max_parallel=.* is not valid: write a whole number from 1"):
        one.local(max_parallel=most)


@pytest.mark.parametrize("cache", [False, True])
def test_a_persons_folders_are_as_they_were(cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    (mine / "data" / "a.txt").write_text("a")
    monkeypatch.chdir(mine)

    @tl.step
    def copied(data: tl.Dataset) -> tl.Dataset:
        made = tl.Dataset()
        (made.path / "b.txt").write_text((data.path / "a.txt").read_text() * 2)
        return made

    @tl.step
    def kept(folder: str) -> tl.Dataset:
        return tl.Dataset.from_path(Path(folder))

    @tl.pipeline
    def both(folder: str) -> tl.Dataset:
        return copied(kept(folder))

    before = {path: path.stat().st_mtime_ns for path in [mine, *mine.rglob("*")]}
    for _ in range(2):
        assert (both.local(cache=cache, folder=str(mine / "data")).path / "b.txt").read_text() == "aa"
    assert {path: path.stat().st_mtime_ns for path in [mine, *mine.rglob("*")]} == before


def test_a_failing_step_raises_its_own_exception_with_its_own_frames():
    @tl.pipeline
    def broken() -> int:
        return inc(fails(3))

    with pytest.raises(ZeroDivisionError) as caught:
        broken.local()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (Path(last.filename).name, last.name) == (Path(__file__).name, "fails")
    assert "The step 'fails' failed." in caught.value.__notes__


def test_retries_are_honored_with_a_new_attempt_each():
    @tl.pipeline
    def again() -> int:
        return third_time()

    attempts.clear()
    assert again.local() == 3
    assert attempts == [1, 2, 3]


def test_a_context_has_an_artifacts_folder_devices_and_a_checkpoint():
    @tl.step(gpu="A100:2")
    def look(*, ctx: tl.Context = tl.INJECTED) -> list[Any]:
        (ctx.artifacts_dir / "note").write_text("x")
        state = {"n": 1}
        ctx.checkpoint.register(state=state)
        ctx.checkpoint.save(1)
        return [ctx.node, ctx.should_stop, [gpu.virtual for gpu in ctx.gpus], tl.context() is ctx]

    @tl.pipeline
    def sees() -> list[Any]:
        return look()

    assert sees.local() == ["look", False, [True, True], True]


def test_a_step_that_calls_sys_exit_ends_the_run_and_not_a_thread_silently():
    @tl.step
    def leaves(x: int) -> int:
        sys.exit(x)

    @tl.pipeline
    def two() -> list[int]:
        return [leaves(3), inc(1)]

    with pytest.raises(SystemExit) as caught:
        two.local()
    assert caught.value.code == 3


def test_a_decorator_under_the_step_is_kept():
    def doubled(function):
        @functools.wraps(function)
        def wrapper(x: int) -> int:
            return 2 * function(x)

        return wrapper

    @tl.step
    @doubled
    def five(x: int) -> int:
        return 5

    @tl.pipeline
    def ten() -> int:
        return five(0)

    assert ten.local() == 10


def test_files_are_handed_on():
    @tl.step
    def write() -> tl.Dataset:
        data = tl.Dataset(rows=2)
        (data.path / "rows").write_text("1\n2\n")
        return data

    @tl.step
    def read(data: tl.Dataset) -> list[Any]:
        return [(data.path / "rows").read_text(), data.metadata]

    @tl.pipeline
    def files() -> list[Any]:
        return read(write())

    assert files.local() == ["1\n2\n", {"rows": 2}]


def test_an_interrupt_tells_the_steps_that_run_to_stop():
    started, stopped = threading.Event(), threading.Event()

    @tl.step
    def waits(*, ctx: tl.Context = tl.INJECTED) -> None:
        started.set()
        deadline = threading.Event()
        while not ctx.should_stop:
            assert not deadline.wait(0.01)
        stopped.set()

    @tl.step
    def interrupts(x: int) -> None:
        assert started.wait(20)

    @tl.pipeline
    def both() -> None:
        waits()
        interrupts(1)

    from trainlet_pipelines import executors

    settle, calls = executors.InProcess.settle, []

    def interrupted(self: Any) -> None:
        settle(self)
        calls.append(1)
        if len(calls) == 2:  # the first task has ended, the other one goes on
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors.InProcess, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            both.local()
    assert stopped.wait(20)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_leaves_no_file_open_and_no_staged_state_in_memory(fails: bool):
    @tl.step(checkpoint=tl.Checkpoint(every=0.001))
    def saves(*, ctx: tl.Context = tl.INJECTED) -> int:
        ctx.checkpoint.register(state={"step": 0})
        ctx.checkpoint.restore()
        for step in range(3):
            ctx.checkpoint.step(step + 1)
        return 1 // (0 if fails else 1)

    @tl.pipeline
    def one() -> int:
        return saves()

    def run() -> int:
        try:
            one.local()
        except ZeroDivisionError:
            assert fails
        return psutil.Process().num_fds()

    assert run() == run()
