"""I1, I2, I6, I9: writers that supersede each other, a person who removes, and readers, all at the same time."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.functions.checkpoints import faulty_stores

from trainlet.core.errors import Fenced, TrainletError
from trainlet.core.protocols import ObjectInfo
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer, formats, listing, verify

PREFIX = "runs/r.train"
WRITERS, READERS, SAVES = 3, 2, 25
WHOLE = os.environ.get("TRAINLET_TEST_CRASHES") == "all"


class SharedStore:
    """A store in memory for many threads: each call happens at once, and lets others go first now and then."""

    def __init__(self, store: Any, seed: int) -> None:
        self.url, self._store, self._dice, self._lock = "memory:", store, random.Random(seed), threading.Lock()

    def _do(self, name: str, *arguments: Any) -> Any:
        for _ in range(self._dice.randrange(4)):
            os.sched_yield()
        with self._lock:
            return getattr(self._store, name)(*arguments)

    def create(self, key: str, data: Any) -> None:
        self._do("create", key, data)

    def get(self, key: str) -> bytes:
        found: bytes = self._do("get", key)
        return found

    def get_range(self, key: str, start: int, end: int) -> bytes:
        found: bytes = self._do("get_range", key, start, end)
        return found

    def delete(self, key: str) -> None:
        self._do("delete", key)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        found: Iterator[ObjectInfo] = self._do("list", prefix, limit)
        return found

    def local_path(self, key: str) -> None:
        return None


class Round:
    """What the threads of one round know together, and what went wrong."""

    def __init__(self, store: Any, seed: int) -> None:
        self.store, self.seed, self.wrong = store, seed, list[str]()
        self._epochs, self._steps, self._lock = itertools.count(1), itertools.count(1), threading.Lock()
        self.acknowledged = self.reads = self.fenced = 0
        self._over = threading.Event()

    def run(self) -> list[str]:
        writers = [self._thread(self._write, number) for number in range(WRITERS)]
        others = [self._thread(self._read, number) for number in range(READERS)] + [self._thread(self._tidy, 0)]
        for one in writers:
            one.join(120)
        self._over.set()
        for one in others:
            one.join(60)
        return self.wrong + verify(self.store, PREFIX)

    def _thread(self, work: Callable[[random.Random], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                work(random.Random(f"{self.seed} {work.__name__} {number}"))
            except Exception as error:  # noqa: BLE001 - whatever it is, it went wrong
                self.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _write(self, dice: random.Random) -> None:
        left = SAVES
        while left > 0:
            with self._lock:
                epoch, floor = next(self._epochs), self.acknowledged
            state = {"left": np.zeros(30), "right": np.zeros(30), "frozen": np.ones(5)}
            made = Checkpointer(self.store, PREFIX, epoch, policy=CheckpointPolicy(every_s=1e9, keep=Keep(last=2)))
            made.register(**state)
            try:
                start = made.restore()
                self._check("restored", start.step if start else 0, floor, state)
                for _ in range(dice.randrange(1, 8)):
                    left -= 1
                    step = next(self._steps)
                    state["left"][:] = state["right"][:] = step
                    made.save(step)
                    with self._lock:
                        self.acknowledged = max(self.acknowledged, step)
            except Fenced:
                self.fenced += 1

    def _read(self, dice: random.Random) -> None:
        while not self._over.is_set():
            floor = self.acknowledged
            try:
                step, found = formats.read(self.store, PREFIX)
            except TrainletError as error:
                if floor:
                    self.wrong.append(f"read nothing although step {floor} was acknowledged: {error}")
                continue
            self.reads += 1
            self._check("read", step, floor, found)

    def _tidy(self, dice: random.Random) -> None:
        while not self._over.is_set():
            self.wrong += listing.verify(self.store, PREFIX)
            steps = [one.step for one in listing.list_checkpoints(self.store, PREFIX)]
            if steps:
                act = dice.choice((listing.remove, listing.pin, listing.unpin))
                with contextlib.suppress(TrainletError):  # newest, pinned, or gone meanwhile
                    act(self.store, PREFIX, dice.choice(steps))

    def _check(self, what: str, step: int, floor: int, state: dict[str, Any]) -> None:
        if step < floor:
            self.wrong.append(f"{what} step {step} although {floor} was acknowledged")
        if set(state["left"]) != {float(step)} or set(state["right"]) != {float(step)} or set(state["frozen"]) != {1.0}:
            self.wrong.append(f"{what} a mix as step {step}")


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(20 if WHOLE else 3))
def test_I1_I2_I6_I9_readers_and_removals_beside_writers_see_nothing_wrong(seed: int) -> None:
    made = Round(SharedStore(faulty_stores.CarefulStore(), seed), seed)
    assert made.run() == []
    assert made.reads > 5 and made.fenced > 2, "else nothing met"


def test_the_same_beside_a_store_that_ignores_conditions_goes_wrong() -> None:
    def believed(seed: int) -> Any:
        store = faulty_stores.CarelessStore()
        store.create("store.json", b'{"create_once": true}')  # else one writer at a time would be let in
        return SharedStore(store, seed)

    assert any(Round(believed(seed), seed).run() for seed in range(5)), "else the test above proves nothing"
