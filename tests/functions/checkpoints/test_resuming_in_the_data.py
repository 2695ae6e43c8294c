"""A resumed run goes on in the same order of samples and random numbers, on however many ranks: bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import Checkpointer


@given(size=st.integers(1, 200), batch=st.integers(1, 50), seed=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_each_sample_comes_once_an_epoch_and_epochs_differ(size: int, batch: int, seed: int) -> None:
    sampler = tl.checkpoints.Sampler(size, batch, seed=seed)
    first = [index for indices in sampler for index in indices]
    second = [index for indices in sampler for index in indices]
    assert sorted(first) == sorted(second) == list(range(size))
    assert size < 20 or first != second


@given(size=st.integers(2, 100), stop=st.integers(0, 6), before=st.integers(1, 4), after=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_I11_any_number_of_ranks_goes_on_in_the_same_global_order(
    size: int, stop: int, before: int, after: int
) -> None:
    batch = 12

    def take(state: dict[str, int] | None, world: int, batches: int | None) -> tuple[list[Any], dict[str, int]]:
        ranks = [tl.checkpoints.Sampler(size, batch, rank=rank, world=world) for rank in range(world)]
        for sampler in ranks if state else ():
            sampler.load_state_dict(state or {})
        seen: list[Any] = []
        for number, parts in enumerate(zip(*ranks, strict=True)):
            merged: list[Any] = [None] * sum(map(len, parts))
            for rank, part in enumerate(parts):
                merged[rank::world] = part
            seen += merged
            if batches is not None and number + 1 >= batches:
                break
        return seen, ranks[0].state_dict()

    straight, _ = take(None, 1, None)
    if stop * batch >= size or stop == 0:
        return
    begun, state = take(None, before, stop)
    rest, _ = take(state, after, None)
    assert begun + rest == straight


def train(store: Any, epoch: int, steps: int, leave_out: str = "") -> bytes:
    """Train with noise and shuffled data to a step, from wherever the store says; returns the weights."""
    weights = np.zeros(4)
    sampler, randomness = tl.checkpoints.Sampler(30, 4, seed=3), tl.checkpoints.RandomStates()
    own = np.random.default_rng(1)
    parts = {"weights": weights, "sampler": sampler, "randomness": randomness, "own": own}
    parts.pop(leave_out, None)
    ck = Checkpointer(store, "runs/r.train", epoch)
    ck.register(**parts)
    random.seed(1)
    np.random.seed(1)
    start = ck.restore()
    done = start.step if start else 0
    while True:
        for indices in sampler:
            weights += np.mean(indices) * 0.01 + random.random() + np.random.normal() + own.random()
            done += 1
            ck.save(done)
            if done == steps:
                return weights.tobytes()


@pytest.mark.parametrize("stop", [1, 7, 8, 11])
def test_I10_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path, stop: int) -> None:
    straight = train(DirectoryStore(tmp_path / "a"), 1, 12)
    train(DirectoryStore(tmp_path / "b"), 1, stop)
    assert train(DirectoryStore(tmp_path / "b"), 2, 12) == straight


@pytest.mark.parametrize("left_out", ["weights", "sampler", "randomness", "own"])
def test_I10_leaving_out_any_part_makes_it_differ(tmp_path: Path, left_out: str) -> None:
    straight = train(DirectoryStore(tmp_path / "a"), 1, 12)
    train(DirectoryStore(tmp_path / "b"), 1, 5, left_out)
    assert train(DirectoryStore(tmp_path / "b"), 2, 12, left_out) != straight


def test_a_position_of_other_data_is_refused() -> None:
    with pytest.raises(ValueError, match="30 samples with seed 0"):
        tl.checkpoints.Sampler(31, 4).load_state_dict(tl.checkpoints.Sampler(30, 4).state_dict())
