"""Several ranks save one checkpoint, and any other number of ranks restores it, each its own shard."""

from __future__ import annotations

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.client.stores import DirectoryStore
from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints import Checkpointer, Shard, arrays, layouts, receipts, savers
from trainlet_functions.checkpoints.stages import Snapshot

PREFIX = "runs/r.train"


def parts(total: int, ranks: int) -> list[tuple[int, int]]:
    """Cut rows among ranks, some of which may get none."""
    bounds = [total * rank // ranks for rank in range(ranks + 1)]
    return list(itertools.pairwise(bounds))


def save(store: Any, whole: np.ndarray, ranks: int, absent: int | None = None, timeout_s: float = 30.0) -> list[str]:
    """Save as that many ranks at once; returns what went wrong."""
    wrong: list[str] = []

    def one(rank: int, begin: int, end: int) -> None:
        saver = savers.Saver(store, PREFIX, 1, ranks=receipts.Ranks(rank, ranks, timeout_s))
        found = {"w": Shard(whole[begin:end], (begin, 0), whole.shape)}
        tensors = tuple(arrays.describe(name, value) for name, value in found.items())
        layout = layouts.of(tensors)
        memory = memoryview(bytearray(layout.size_bytes))
        arrays.copy_out(found, layout, memory)
        tree = {"w": {"$ck": "tensor", "name": "w", "as": "numpy"}}
        while True:
            with contextlib.suppress(savers.NotYet):
                saver.acquire()
                break
        try:
            saver.commit(Snapshot(1, 5, tree, tensors, {}, {}), memory, "periodic")
        except PlatformError as error:
            wrong.append(str(error))

    threads = [
        threading.Thread(target=one, args=(rank, *rows))
        for rank, rows in enumerate(parts(len(whole), ranks))
        if rank != absent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@given(rows=st.integers(1, 13), writers=st.integers(1, 4), readers=st.integers(1, 5))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_ranks_restores_what_any_number_saved(
    tmp_path_factory: pytest.TempPathFactory, rows: int, writers: int, readers: int
) -> None:
    store = DirectoryStore(tmp_path_factory.mktemp("store"))
    whole = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    assert save(store, whole, writers) == []
    for epoch, (begin, end) in enumerate(parts(rows, readers), 2):
        mine = np.full((end - begin, 3), -1, np.float32)
        reader = Checkpointer(store, PREFIX, epoch)
        reader.register(w=Shard(mine, (begin, 0), (rows, 3)))
        progress = reader.restore()
        assert progress is not None and progress.step == 5
        assert (mine == whole[begin:end]).all()


def test_a_rank_that_does_not_deliver_is_named_and_nothing_is_committed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    wrong = save(store, np.zeros((6, 2)), 3, absent=2, timeout_s=0.1)
    assert len(wrong) == 1 and "Rank 2 did not deliver step 5" in wrong[0]
    reader = Checkpointer(store, PREFIX, 2)
    reader.register(w=np.zeros((6, 2)))
    assert reader.restore() is None
