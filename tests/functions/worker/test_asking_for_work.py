"""How a worker comes to its work: it asks, events wake it, and no lost answer costs a lease time."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

QUICK = "def f(): return 'done'"
SLOW = """
    import time
    def f():
        print("began", flush=True)
        time.sleep(1.5)
        return "done"
"""


def test_a_worker_asks_for_work_when_it_starts_and_after_each_task(bench: Any) -> None:
    bench.offer(QUICK)
    bench.offer(QUICK)
    bench.start()
    assert [bench.finish().output, bench.finish().output] == ["done", "done"]


def test_T5_the_same_event_again_starts_nothing_more(bench: Any) -> None:
    worker = bench.start()
    bench.wake("unknown.f")
    key = bench.offer(SLOW)
    assert [bench.wake(key) for _ in range(3)] == [(202, b"")] * 3
    assert bench.finish().output == "done"
    assert bench.wake(key) == (202, b"")
    bench.offer(QUICK)
    bench.wake("run2.f")
    assert bench.finish().output == "done"
    assert bench.api.finishes == [] and worker.poll() is None


def test_T4_an_event_is_answered_within_a_second_when_the_api_hangs(bench: Any) -> None:
    bench.start()
    bench.wake("unknown.f")
    bench.api.deaf.set()
    began = time.monotonic()
    status, body = bench.wake("run1.f")
    took = time.monotonic() - began
    bench.api.deaf.clear()
    assert (status, body) == (503, b"")
    assert took < 1.5, "a second, and some for a busy machine"


def test_a_claim_whose_answer_was_lost_is_taken_up_at_once(bench: Any) -> None:
    bench.api.lose_next_claim = True
    bench.offer(QUICK)
    bench.start()
    assert bench.finish().output == "done"
    assert len({ask.nonce for ask in bench.api.asks[:2]}) == 1, "it repeated its question, and waited for no lease"


def test_a_worker_that_finds_no_api_asks_until_there_is_one(bench: Any) -> None:
    bench.api.away = True
    bench.offer(QUICK)
    worker = bench.start()
    bench.eventually(lambda: bench.api.refused)
    bench.api.away = False
    assert bench.finish().output == "done"
    assert worker.poll() is None


def test_a_worker_in_a_pod_says_which_revision_it_serves(bench: Any) -> None:
    bench.start(K_REVISION="train-00002")
    bench.eventually(lambda: bench.api.asks)
    assert bench.api.asks[0].revision == "train-00002"


def test_an_idle_worker_goes_after_its_time_with_status_0(bench: Any) -> None:
    worker = bench.start(TRAINLET_WARM_S="0.3")
    assert worker.wait(20) == 0
