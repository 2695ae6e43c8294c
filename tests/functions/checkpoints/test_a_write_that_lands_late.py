"""I5: a write whose reply is lost, or that lands when nobody waits for it any more, commits once or not at all."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.functions.checkpoints import faulty_stores

from trainlet.core.errors import Fenced, PlatformError
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints, log, verify

PREFIX = "runs/r.train"


class LateStore(faulty_stores.CarefulStore):  # type: ignore[misc,name-defined]
    """Loses the answer to some writes, which reach the objects only after some more calls, whoever makes them."""

    def __init__(self, at: int, lost: int, after: int) -> None:
        super().__init__()
        self._writes, self._at, self._lost, self._after = 0, at, lost, after
        self._way: list[tuple[int, str, bytes]] = []
        self.landed: list[str] = []
        self._calls = 0
        self.armed = False

    def _tick(self) -> None:
        self._calls += 1
        for due in [one for one in self._way if one[0] <= self._calls]:
            self._way.remove(due)
            if due[1] not in self.objects:
                self.landed.append(due[1])
                self.objects[due[1]] = due[2]

    def create(self, key: str, data: Any) -> None:
        self._tick()
        if self.armed:
            self._writes += 1
            if self._at <= self._writes < self._at + self._lost:
                self._way.append((self._calls + self._after, key, bytes(data)))
                raise PlatformError("no answer")
        super().create(key, data)

    def get(self, key: str) -> bytes:
        self._tick()
        result: bytes = super().get(key)
        return result

    def list(self, prefix: str, limit: int | None = None) -> Any:
        self._tick()
        return super().list(prefix, limit)


def writer(store: Any, epoch: int) -> tuple[Checkpointer, np.ndarray[Any, Any]]:
    weights = np.zeros(4)
    made = Checkpointer(store, PREFIX, epoch, policy=CheckpointPolicy(every_s=1e9, keep=Keep(last=9)))
    made.register(weights=weights)
    return made, weights


CASES = random.Random(9).sample(
    [(at, lost, after) for at in range(1, 8) for lost in (1, 2, 5) for after in (0, 1, 2, 4, 7, 11, 16)], 60
)


@pytest.mark.parametrize(("at", "lost", "after"), CASES)
def test_I5_a_write_that_lands_late_commits_once_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, at: int, lost: int, after: int
) -> None:
    monkeypatch.setattr(log.Log.__init__, "__kwdefaults__", {"pause": lambda seconds: None})
    store = LateStore(at, lost, after)
    acknowledged = []
    first, weights = writer(store, 1)
    first.restore()
    store.armed = True
    for step in (1, 2, 3):
        weights[:] = step
        try:
            first.save(step)
            acknowledged.append(step)
        except PlatformError:
            continue
    second, weights = writer(store, 2)
    start = second.restore()
    newest = start.step if start else 0
    assert newest >= max(acknowledged, default=0) and set(weights) <= {float(newest)}
    for step in range(newest + 1, newest + 4):
        weights[:] = step
        second.save(step)
    with pytest.raises(Fenced):
        first.save(99)
    steps = [one.step for one in reversed(list_checkpoints(store, PREFIX))]
    assert steps == sorted(set(steps)) and set(acknowledged) <= set(steps), "each once, and all that were acknowledged"
    assert steps[-1] == newest + 3 and verify(store, PREFIX) == []


def test_I5_some_of_these_writes_do_land_when_another_attempt_has_taken_over() -> None:
    assert any(case[1] == 5 and case[2] > 4 for case in CASES)
