"""The ranks of an attempt save one checkpoint of one step, whatever each of them is doing, and any number restores it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.functions.checkpoints import teams

from trainlet.client.stores import open_store
from trainlet.core.errors import PlatformError, Preempted
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Checkpointer, Shard, list_checkpoints, manifests, rounds, verify
from trainlet_functions.checkpoints.log import Log

PREFIX = teams.PREFIX
ROWS = 12
ALWAYS = CheckpointPolicy(every_s=1e-6)
NEVER = CheckpointPolicy(every_s=1e9)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(world: int, epoch: int, policy: CheckpointPolicy = ALWAYS, **order: Any) -> Any:
        made.append(teams.Team(tmp_path, world, epoch, policy, **order))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Model:
    """What one rank has: a shard of the weights, a replica of the bias, and random numbers of its own."""

    def __init__(self, rank: int, world: int) -> None:
        begin, end = (ROWS * one // world for one in (rank, rank + 1))
        self.rows = np.zeros((end - begin, 3))
        self.begin = begin
        self.bias = np.zeros(300_000)
        self.noise = {"seed": np.full(4, rank, np.int64), "name": f"rank {rank}"}

    def register(self, ck: Checkpointer) -> None:
        ck.register(rows=Shard(self.rows, (self.begin, 0), (ROWS, 3)), bias=self.bias, noise=self.noise)

    def train(self, step: int) -> None:
        self.rows[:] = step * 100 + np.arange(self.begin, self.begin + len(self.rows))[:, None]
        self.bias[:] = step

    def is_of(self, step: int) -> bool:
        wanted = step * 100 + np.arange(self.begin, self.begin + len(self.rows))[:, None]
        return bool((self.rows == wanted).all() and (self.bias == step).all())


def lockstep(world: int, steps: int, **given: Any) -> Callable[[int, Checkpointer], Any]:
    """Train in lockstep, as ranks that average gradients do; returns (first step, the model)."""
    barrier = threading.Barrier(world)

    def work(rank: int, ck: Checkpointer) -> Any:
        model = Model(rank, world)
        model.register(ck)
        start = ck.restore()
        first = start.step if start else 0
        for step in range(first + 1, first + 1 + steps):
            barrier.wait(60)
            model.train(step)
            ck.step(step, **{name: make(step) for name, make in given.items()})
        ck.wait()
        return first, model

    return work


def restored(rank: int, ck: Checkpointer, world: int) -> tuple[int, Model]:
    model = Model(rank, world)
    model.register(ck)
    start = ck.restore()
    assert start is not None
    return start.step, model


def steps_of(tmp_path: Path) -> list[int]:
    return [one.step for one in list_checkpoints(open_store(str(tmp_path / "store")), PREFIX)]


@pytest.mark.parametrize("readers", [1, 4])
def test_any_number_of_ranks_restores_what_three_saved_together(
    team: Callable[..., Any], tmp_path: Path, readers: int
) -> None:
    results = team(3, 1).together(lockstep(3, 4))
    assert all(not isinstance(one, BaseException) for one in results), results
    newest = steps_of(tmp_path)[0]
    found = team(readers, 2).together(lambda rank, ck: restored(rank, ck, readers))
    for rank, (step, model) in enumerate(found):
        assert step == newest and model.is_of(step)
        assert model.noise["name"] == f"rank {rank if rank < 3 else 0}"
        assert set(model.noise["seed"]) == {rank if rank < 3 else 0}
    store = open_store(str(tmp_path / "store"))
    assert verify(store, PREFIX) == []
    assert not list(store.list(f"{PREFIX}/parts/{1:06d}-{newest:012d}")), "receipts go when the step is committed"


def test_replicas_are_written_once(team: Callable[..., Any], tmp_path: Path) -> None:
    team(3, 1).together(lockstep(3, 3))
    store = open_store(str(tmp_path / "store"))
    commit = Log(store, PREFIX).refresh().commits[-1]
    manifest = manifests.read(store, PREFIX, commit)
    assert manifest.world == 3
    assert manifest.bytes_new < 1.2 * 300_000 * 8


def test_I14_a_rank_that_never_comes_blocks_nobody_and_is_named(
    team: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "PATIENCE_S", 0.0)
    made = team(2, 1, timeout_s=0.2)
    gone = threading.Event()

    def work(rank: int, ck: Checkpointer) -> int:
        model = Model(rank, 2)
        model.register(ck)
        ck.restore()
        if rank == 1:
            gone.wait(60)
            return 0
        for step in itertools.count(1):
            model.train(step)
            ck.step(step)
            if sum("Rank 1 did not deliver" in str(fields) for _, _, fields in made.said) >= 4:
                gone.set()
                return step
        raise AssertionError

    results = made.together(work)
    assert isinstance(results[0], int), "more failures than end training, and it goes on"
    assert steps_of(tmp_path) == []


@pytest.mark.parametrize("join_s", [0.0, 1e9])
def test_ranks_that_registered_nothing_are_not_waited_for(
    team: Callable[..., Any], tmp_path: Path, join_s: float
) -> None:
    def work(rank: int, ck: Checkpointer) -> None:
        if rank == 0:
            weights = np.zeros(3)
            ck.register(weights=weights)
            assert ck.restore() is None
            ck.save(7)
        elif join_s and rank == 1:
            ck.step(1)  # without anything registered
        elif join_s:
            ck.wait()  # as at the end of a step's function

    assert team(3, 1, join_s=join_s).together(work) == [None] * 3
    assert steps_of(tmp_path) == [7]


def test_a_rank_that_registers_late_is_part_of_the_first_save(team: Callable[..., Any], tmp_path: Path) -> None:
    made = team(2, 1, join_s=1e9)
    ordered = threading.Event()

    def work(rank: int, ck: Checkpointer) -> None:
        model = Model(rank, 2)
        if rank == 1:
            ordered.wait(60)
        model.register(ck)
        ck.restore()
        if rank == 0:
            threading.Timer(0.2, ordered.set).start()
        ck.save(3)

    assert made.together(work) == [None, None]
    store = open_store(str(tmp_path / "store"))
    assert verify(store, PREFIX) == [] and steps_of(tmp_path) == [3]


def test_a_stop_that_ranks_hear_at_different_steps_ends_all_at_the_same(
    team: Callable[..., Any], tmp_path: Path
) -> None:
    made = team(3, 1, NEVER)
    barrier = threading.Barrier(3)

    def work(rank: int, ck: Checkpointer) -> None:
        model = Model(rank, 3)
        model.register(ck)
        ck.restore()
        for step in itertools.count(1):
            barrier.wait(60)
            model.train(step)
            if step == 5 and rank == 1:
                while min(made.board.arrived(other) for other in (0, 2)) < 5:
                    time.sleep(0.001)  # they have finished this step, and this rank has not
                made.board.request_stop("preempted")
            ck.step(step)

    results = made.together(work)
    assert all(isinstance(one, Preempted) for one in results), results
    [stopped] = {str(one) for one in results}
    step = steps_of(tmp_path)[0]
    assert f"step {step} " in stopped and step == 6
    assert all(model.is_of(step) for _, model in team(2, 2).together(lambda rank, ck: restored(rank, ck, 2)))


def test_the_newest_step_that_all_have_staged_is_committed_when_they_cannot(
    team: Callable[..., Any], tmp_path: Path
) -> None:
    made = team(2, 1, NEVER)
    barrier = threading.Barrier(2)

    def work(rank: int, ck: Checkpointer) -> None:
        model = Model(rank, 2)
        model.register(ck)
        ck.restore()
        for step in itertools.count(1):
            barrier.wait(60)
            model.train(step)
            ck.step(step)
            barrier.wait(60)
            if (made.board.common() or 0) >= 3:
                return
            barrier.wait(60)

    assert made.together(work) == [None, None]
    common = made.board.common()
    made.end(staged=True)
    assert steps_of(tmp_path) == [common]
    found = team(2, 2).together(lambda rank, ck: restored(rank, ck, 2))
    assert all(step == common and model.is_of(step) for step, model in found)


def test_the_metrics_of_rank_0_decide_what_is_best(team: Callable[..., Any], tmp_path: Path) -> None:
    losses = [5.0, 3.0, 4.0, 2.0, 9.0]
    made = team(2, 1, CheckpointPolicy(every_s=1e9, on_improve=("loss", "min")))
    barrier = threading.Barrier(2)

    def work(rank: int, ck: Checkpointer) -> None:
        model = Model(rank, 2)
        model.register(ck)
        ck.restore()
        for step, loss in enumerate(losses, 1):
            barrier.wait(60)
            model.train(step)
            ck.step(step, metrics={"loss": loss} if rank == 0 else None)
            ck.wait()

    assert made.together(work) == [None, None]
    assert sorted(steps_of(tmp_path)) == [1, 2, 4]


def test_damage_that_only_one_rank_sees_leads_all_to_the_step_before(team: Callable[..., Any], tmp_path: Path) -> None:
    first = team(2, 1, NEVER)

    def save(rank: int, ck: Checkpointer) -> None:
        model = Model(rank, 2)
        model.register(ck)
        ck.restore()
        for step in (1, 2):
            model.train(step)
            ck.save(step)

    assert first.together(save) == [None, None]
    store = open_store(str(tmp_path / "store"))
    manifest = manifests.read(store, PREFIX, Log(store, PREFIX).refresh().commits[-1])
    hurt = next(part for part in manifest.tensors["rows"].slices if part.offset[0] > 0)
    path = store.local_path(hurt.pack)
    assert path is not None
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[hurt.range[0]] ^= 1
    path.write_bytes(raw)
    results = team(2, 2).together(lambda rank, ck: restored(rank, ck, 2))
    assert isinstance(results[1], PlatformError) and "Rank 1 cannot read its part" in str(results[1])
    found = team(2, 3).together(lambda rank, ck: restored(rank, ck, 2))
    assert [step for step, _ in found] == [1, 1] and all(model.is_of(1) for _, model in found)
