"""`.local(isolated=True)`: each step in a clean process that has only its bundle."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl

SOURCE = """
import os
import signal
import sys
import time
from pathlib import Path

import trainlet as tl

FACTOR = 3


@tl.step
def scale(x: int) -> int:
    return x * FACTOR


@tl.step
def clean() -> list:
    return [sys.flags.isolated, "pytest" in sys.modules, "PYTHONPATH" in os.environ]


@tl.step
def fails(x: int) -> int:
    return x // 0


@tl.step
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tl.step(retries=1)
def second_time(*, ctx: tl.Context = tl.INJECTED) -> int:
    if ctx.attempt < 2:
        raise ValueError("not yet")
    return ctx.attempt


@tl.step
def until_told(marker: str, *, ctx: tl.Context = tl.INJECTED) -> None:
    Path(marker).touch()
    while not ctx.should_stop:
        time.sleep(0.01)


@tl.pipeline
def scaled() -> list:
    return tl.each([1, 2, 3], scale)


@tl.pipeline
def cleaned() -> list:
    return clean()


@tl.pipeline
def failing() -> int:
    return scale(fails(1))


@tl.pipeline
def dying() -> None:
    dies()


@tl.pipeline
def again() -> int:
    return second_time()


@tl.pipeline
def waiting(marker: str) -> None:
    until_told(marker)
"""


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module above, imported as a person would."""
    (tmp_path / "lonely.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sys.modules.pop("lonely", None)
    yield importlib.import_module("lonely")
    sys.modules.pop("lonely", None)


def test_values_go_through_clean_processes(lonely):
    assert lonely.scaled.local(isolated=True) == [3, 6, 9]


def test_the_process_has_nothing_of_this_one(lonely):
    assert lonely.cleaned.local(isolated=True) == [1, False, False]


def test_a_failure_carries_the_remote_traceback(lonely):
    with pytest.raises(tl.StepFailed, match=r"fails failed at lonely.py:\d+: ZeroDivisionError") as caught:
        lonely.failing.local(isolated=True)
    assert "return x // 0" in caught.value.traceback


def test_a_process_that_is_killed_is_a_failure_that_says_so(lonely):
    with pytest.raises(tl.StepFailed, match="dies: its process was killed by signal 9"):
        lonely.dying.local(isolated=True)


def test_retries_start_a_new_process(lonely):
    assert lonely.again.local(isolated=True) == 2


def test_cancel_reaches_the_process_that_runs(lonely, tmp_path):
    import threading
    import time

    from trainlet.client.stores import DirectoryStore
    from trainlet_pipelines import executors, runner, values

    step = lonely.until_told
    store = DirectoryStore(tmp_path / "store")
    bundle, spec = step.bundle(), step.spec()
    executor = executors.Isolated({step.name: spec}, {step.name: bundle.data}, "r-1", store, tmp_path / "scratch")
    space = values.EncodedSpace(store, tmp_path)
    marker = tmp_path / "marker"
    walker = runner.Runner(lonely.waiting.graph(), {"marker": str(marker)}, space, executor)

    def cancel() -> None:
        deadline = time.monotonic() + 30
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        walker.cancel("enough")

    thread = threading.Thread(target=cancel)
    thread.start()
    assert walker.run().state == "canceled"
    thread.join()
    executor.close()
