"""An attempt goes on without its API, stops when it is told to, and writes nothing once it is fenced."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainlet.core import wire
from trainlet.core.clocks import SystemClock
from trainlet_functions.worker import spool
from trainlet_functions.worker.meter import Meter

pytestmark = pytest.mark.timeout(60)

COUNTS = """
    import time
    def f():
        for step in range(40):
            print(f"step {step}")
            time.sleep(0.05)
        return "done"
"""
STUBBORN = """
    import os, time
    def f():
        print(f"pid {os.getpid()}")
        time.sleep(60)
"""
PLATFORM = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "trainlet_functions.worker"])
"""
LISTENS = """
    import time
    import trainlet as tl
    from trainlet.core import errors
    def f():
        print("began")
        while not tl.context().should_stop:
            time.sleep(0.02)
        raise errors.Preempted(tl.context().stop_reason)
"""


SAVES_SLOWLY = """
    import os, time
    import trainlet as tl
    from trainlet.core import errors
    def f():
        print("began")
        while not tl.context().should_stop:
            time.sleep(0.02)
        print("saving")
        while not os.path.exists("SAVED"):
            time.sleep(0.02)
        raise errors.Preempted(tl.context().stop_reason)
"""


def child_pid(bench: Any) -> int:
    lines = bench.eventually(lambda: [text for text in bench.api.lines.get(0, []) if text.startswith("pid ")])
    return int(lines[0].split()[1])


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_T7_an_api_that_is_away_for_a_while_loses_no_line_no_usage_and_no_result(bench: Any) -> None:
    bench.offer(COUNTS, gpu=True)
    bench.start()
    bench.eventually(lambda: bench.api.lines.get(0))
    bench.api.away = True
    refused = bench.api.refused
    bench.eventually(lambda: bench.api.refused > refused + 3)
    bench.api.away = False
    finish = bench.finish()
    assert finish.output == "done"
    assert bench.api.lines[0] == [f"step {step}" for step in range(40)]
    events = [event for beat in bench.api.heartbeats for event in beat.usage] + finish.usage
    assert all(one.seq < two.seq and one.elapsed_ns <= two.elapsed_ns for one, two in pairwise(events))
    assert events[-1].kind == "close"
    assert events[-1].elapsed_ns > 2_000_000_000, "the outage is metered like the rest"


def test_T7_an_orphan_tells_its_end_only_after_its_last_line(bench: Any, tmp_path: Path) -> None:
    bench.offer(COUNTS.replace("import time", "import os, time; print(f'pid {os.getpid()}')"))
    settings = {"TRAINLET_ORPHAN_S": "0.5", "TRAINLET_PLATFORM_FILE": str(tmp_path / "platform.json")}
    platform = bench.start(under=PLATFORM, **settings)
    pid = child_pid(bench)
    bench.api.away = True
    platform.kill()
    platform.wait()
    bench.eventually(lambda: gone(pid))
    refused = bench.api.refused
    bench.eventually(lambda: bench.api.refused > refused + 2)
    bench.api.away = False
    bench.finish()
    steps = [line for line in bench.api.lines[0] if line.startswith("step ")]
    assert steps == [f"step {step}" for step in range(40)]


def test_T2_a_fenced_attempt_is_killed_and_writes_nothing_more(bench: Any) -> None:
    bench.offer(STUBBORN)
    worker = bench.start()
    pid = child_pid(bench)
    bench.api.fenced = True
    bench.eventually(lambda: gone(pid), timeout_s=5)
    bench.api.fenced = False
    bench.api.held.clear()
    bench.offer("def f(): return 'next'")
    assert bench.finish().output == "next", "no end of the fenced attempt came before"
    assert worker.poll() is None


def test_T6_a_step_that_does_not_stop_is_killed_after_its_grace(bench: Any) -> None:
    bench.offer(STUBBORN, grace_s=0.5)
    bench.start()
    pid = child_pid(bench)
    bench.api.stop = "canceled"
    finish = bench.finish()
    assert finish.outcome == "canceled"
    assert finish.reason == "the test says so; it did not save in time"
    assert gone(pid)


def test_sigterm_lets_the_step_save_and_ends_with_status_0(bench: Any) -> None:
    bench.offer(LISTENS)
    worker = bench.start()
    bench.eventually(lambda: bench.api.lines.get(0))
    worker.send_signal(signal.SIGTERM)
    finish = bench.finish()
    assert (finish.outcome, finish.error) == ("preempted", None)
    assert "SIGTERM" in finish.reason
    assert worker.wait(10) == 0
    assert bench.api.offered == {}


def test_a_worker_that_drains_answers_503_with_no_body_until_its_child_has_saved(bench: Any, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    bench.offer(SAVES_SLOWLY.replace("SAVED", str(saved)), grace_s=50)
    worker = bench.start()
    bench.eventually(lambda: "began" in bench.api.lines.get(0, []))
    other = bench.offer("def f(): return 'never here'")
    assert bench.wake(other) == (202, b""), "busy is no reason to send the event to somebody else"
    worker.send_signal(signal.SIGTERM)
    bench.eventually(lambda: "saving" in bench.api.lines[0])
    assert bench.wake(other) == (503, b"")
    assert worker.poll() is None and bench.api.finishes == []
    saved.touch()
    assert bench.finish().outcome == "preempted"
    assert worker.wait(30) == 0
    assert list(bench.api.offered) == [other], "it is left for the next worker"


def test_sigterm_of_the_child_alone_hands_the_attempt_over(bench: Any) -> None:
    bench.offer(LISTENS.replace('"began"', "f\"pid {__import__('os').getpid()}\""))
    bench.start()
    psutil.Process(child_pid(bench)).terminate()
    assert bench.finish().outcome == "preempted"


def test_a_timeout_holds_without_a_word_from_the_api(bench: Any) -> None:
    bench.offer(STUBBORN, timeout_s=0.3, grace_s=0.2)
    bench.start()
    finish = bench.finish()
    assert finish.outcome == "failed"
    assert finish.error.kind == "timeout"


def test_a_full_disk_does_not_stop_the_meter(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = bench.offer("def f(): pass", gpu=True)
    claim: wire.ClaimReply = bench.api.offered.pop(key)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool, "save", full)
    meter = Meter(claim, tmp_path, SystemClock())
    kinds = [event.kind for _ in range(2) for event in meter.read()] + [event.kind for event in meter.close()]
    assert kinds == ["open", "heartbeat", "close"]
    assert caplog.text.count("No space left") == 1


def test_M1_claims_of_the_same_epoch_are_leases_of_their_own(bench: Any, tmp_path: Path) -> None:
    """A database that was restored gives an epoch out again, and what a dead worker had spooled of it comes in too."""
    claim = bench.api.offered[bench.offer("def f(): pass", gpu=True)]
    again = claim.model_copy(update={"wall_anchor_ns": claim.wall_anchor_ns + 1})
    (one,), (other,) = (Meter(each, tmp_path, SystemClock()).read() for each in (claim, again))
    assert one.lease != other.lease and one.id != other.id


def test_M1_what_a_killed_worker_had_spooled_is_read(bench: Any) -> None:
    claim = bench.api.offered[bench.offer(STUBBORN, gpu=True)]
    worker = bench.start()
    child_pid(bench)
    bench.api.away = True
    folder = bench.root / "worker0"
    bench.eventually(lambda: [event for event in spool.read_leftover(folder) if event.elapsed_ns > 1_500_000_000])
    worker.kill()
    worker.wait()
    left = spool.read_leftover(folder)
    lease = f"run1.f.1.{claim.wall_anchor_ns:x}.0"
    assert [(event.lease, event.task, event.device.virtual) for event in left] == [(lease, "run1.f", True)]
    assert all(event.elapsed_ns <= left[0].elapsed_ns for beat in bench.api.heartbeats for event in beat.usage)
