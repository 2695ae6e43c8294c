"""`run(cache=True)` on a training API: what is known costs nothing, what is new is done."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("children")]


def test_the_tasks_of_an_equal_run_are_not_done_again(shared: Any, faulty: Any) -> None:
    first = faulty.sums.run(left=41, cache=True)
    value = first.result(120)
    again = faulty.sums.run(left=41, cache=True)
    assert again.result(120) == value
    assert (list(again.tasks), again.usage().gpu_seconds) == ([], 0)
    assert "reused from earlier runs: " in again.reason
    other = faulty.sums.run(left=43, cache=True)
    assert other.result(120) != value
    assert len(other.tasks) >= 1
