"""I16: a save copies into memory that is there already; the state and its two copies are all that it ever needs."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np

from trainlet_functions.checkpoints import stages
from trainlet_functions.checkpoints.stagers import Stager


def test_I16_a_save_allocates_nothing_and_the_copies_take_twice_the_state() -> None:
    descriptors = [stages.anonymous_file() for _ in range(2)]
    state = {f"layer{index}": np.ones((1024, 1024)) for index in range(4)}
    size = sum(one.nbytes for one in state.values())
    stager = Stager([stages.Buffer(one) for one in descriptors])
    stager.prepare(state)
    assert stager.stage(state, 1, "", {}, {}) is not None
    tracemalloc.start()
    for step in range(2, 6):
        assert stager.stage(state, step, "", {}, {}) is not None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 100
    assert sum(os.fstat(one).st_size for one in descriptors) <= 2.05 * size
    for one in descriptors:
        os.close(one)
