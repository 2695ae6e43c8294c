"""`.local(isolated=True)`: each step in a clean process that has only its bundle."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import tiny_wheels
from tests.waiting import eventually

import trainlet as tl
from trainlet.cli import output
from trainlet.core import wire
from trainlet_functions import processes

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
def talks(x: int) -> int:
    print("begin", x)
    print("warned", file=sys.stderr)
    os.write(1, b"half \\xff")
    return x


@tl.step
def marks(folder: str, x: int) -> bool:
    Path(folder, str(x)).touch()
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(os.listdir(folder)) >= 2


@tl.step
def times(x: int) -> list:
    began = time.monotonic()
    sum(range(100_000))
    return [began, time.monotonic()]


@tl.step
def writes() -> list:
    Path("out.txt").write_text("made by a step")
    return sorted(os.listdir())


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


@tl.step(secrets=["hf-token"], ranks=2)
def reports(*, ctx: tl.Context = tl.INJECTED) -> list:
    for step in range(1, 4):
        ctx.metrics(step, loss=1 / step)
    ctx.progress(3, 10, "files")
    print("the token is", os.environ["HF_TOKEN"])
    return [len(os.environ["HF_TOKEN"]), "RANK" in os.environ]


@tl.step(packages=["tinything==1.0"])
def version() -> str:
    import tinything

    return tinything.VERSION


@tl.step
def came_from(before: list) -> list:
    seen, sys.argv[1:] = sys.argv[1:], ["changed"]
    return [*before, [os.getppid(), os.getpid(), seen]]


@tl.step
def leaves() -> int:
    if (pid := os.fork()) == 0:
        time.sleep(600)
    return pid


@tl.pipeline
def coming() -> list:
    return came_from(came_from([]))


@tl.pipeline
def leaving() -> int:
    return leaves()


@tl.pipeline
def scaled() -> list:
    return tl.each([1, 2, 3], scale)


@tl.pipeline
def talking() -> int:
    return talks(7)


@tl.pipeline
def meeting(folder: str) -> list:
    return [marks(folder, 1), marks(folder, 2)]


@tl.pipeline
def timing() -> list:
    return [times(1), times(2)]


@tl.pipeline
def writing() -> list:
    return writes()


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
def reporting() -> list:
    return reports()


@tl.pipeline
def versioned() -> str:
    return version()


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


def test_its_lines_are_shown_as_those_of_a_run(lonely, capsys):
    lonely.talking.local(isolated=True)
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["[talks] begin 7", "[talks] warned", r"[talks] half \xff"]
    at = "2026-01-01T12:34:56.000Z"
    same = wire.LogLine(seq=1, task="r.talks", node="talks", epoch=1, at=at, text="begin 7")
    assert output.log_line(same) == "12:34:56 [talks] begin 7"


@pytest.mark.parametrize("isolated", [False, True])
def test_metrics_progress_and_secrets_work_as_on_a_worker(lonely, capsys, monkeypatch, isolated):
    monkeypatch.setenv("TRAINLET_SECRET_HF_TOKEN", "hf_0123456789")
    assert lonely.reporting.local(isolated=isolated) == [13, False]
    shown = capsys.readouterr()
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in shown.out.splitlines()]
    told = [line for line in lines if "token" not in line]
    assert sorted(told) == ["[reports] 3 of 10 files", "[reports] step 1: loss 1", "[reports] step 3: loss 0.333333"]
    assert ("hf_0123456789" in shown.out) != isolated, "what a process prints is masked as a worker masks it"
    assert shown.err == "lonely-reports has 2 ranks; here it runs as one process.\n"
    assert "HF_TOKEN" not in os.environ


@pytest.mark.parametrize("isolated", [False, True])
def test_a_secret_that_is_not_there_is_told_before_the_step_runs(lonely, isolated):
    with pytest.raises(tl.TrainletError, match=r"hf-token.*trainlet secrets set"):
        lonely.reporting.local(isolated=isolated)


def test_locked_packages_are_what_the_step_imports(lonely, tmp_path, monkeypatch):
    tiny_wheels.offer(tmp_path, monkeypatch)
    assert lonely.versioned.local(isolated=True) == "1.0"


def test_two_processes_run_at_once_and_no_more_than_max_parallel(lonely, tmp_path):
    (tmp_path / "both").mkdir()
    assert lonely.meeting.local(isolated=True, max_parallel=2, folder=str(tmp_path / "both")) == [True, True]
    (_, first), (second, _) = sorted(lonely.timing.local(isolated=True, max_parallel=1))
    assert first <= second


def test_a_step_works_in_a_folder_of_its_own_and_the_persons_is_as_it_was(lonely, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    monkeypatch.chdir(mine)
    assert lonely.writing.local(isolated=True) == ["out.txt"]
    assert [one.name for one in mine.iterdir()] == ["notes.txt"]


def test_the_process_has_nothing_of_this_one(lonely):
    assert lonely.cleaned.local(isolated=True) == [1, False, False]


def test_processes_come_from_one_warm_one_that_ends_with_the_run(lonely):
    (warm, first, seen), (again, second, as_new) = lonely.coming.local(isolated=True)
    assert warm == again != os.getpid()
    assert first != second
    assert seen == as_new == [], "what one task changed is not there for the next"
    assert not psutil.pid_exists(warm)


def test_what_a_step_leaves_behind_ends_with_it(lonely):
    left = lonely.leaving.local(isolated=True)
    eventually(lambda: processes.is_zombie(left), what="its end")  # the kernel ends a killed process a moment later


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
    from trainlet_pipelines import isolated, runner, values

    step = lonely.until_told
    store = DirectoryStore(tmp_path / "store")
    bundle, spec = step.bundle(), step.spec()
    executor = isolated.Isolated(
        {step.name: spec}, {step.name: bundle.data}, "r-1", store, tmp_path / "scratch", tmp_path
    )
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
