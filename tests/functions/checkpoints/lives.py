"""What an attempt does that is lost or killed somewhere, and what the next one must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trainlet.core.errors import PlatformError
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer, verify

PREFIX = "runs/r.train"
POLICY = CheckpointPolicy(every_s=1e9, keep=Keep(last=2))


def live(store: Any, epoch: int, steps: int, tell: Callable[[int], object] = lambda step: None) -> None:
    """Restore and save some steps; each that is acknowledged is told, one that fails is not."""
    left, right, frozen = np.zeros(40), np.zeros(40), np.ones(8)
    made = Checkpointer(store, PREFIX, epoch, policy=POLICY)
    made.register(left=left, right=right, frozen=frozen)
    start = made.restore()
    first = start.step if start else 0
    for step in range(first + 1, first + 1 + steps):
        left[:] = right[:] = step
        try:
            made.save(step)
        except PlatformError:
            continue
        tell(step)


def newest(store: Any, epoch: int) -> int:
    """Restore as the next attempt; returns the step, 0 for none, and -1 when what is there is mixed or damaged."""
    left, right, frozen = np.zeros(40), np.zeros(40), np.zeros(8)
    made = Checkpointer(store, PREFIX, epoch, policy=POLICY)
    made.register(left=left, right=right, frozen=frozen)
    start = made.restore()
    if start is None:
        return 0
    same = set(left) == set(right) == {float(start.step)} and set(frozen) == {1.0}
    return start.step if same and verify(store, PREFIX) == [] else -1
