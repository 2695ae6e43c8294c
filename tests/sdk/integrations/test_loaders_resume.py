"""Data loaders go on behind the batch that was used last, also when they had fetched further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import Checkpointer

torch = pytest.importorskip("torch")


def numbers(size: int = 23) -> Any:
    return torch.utils.data.TensorDataset(torch.arange(size))


def checkpointer(folder: Path, epoch: int, **objects: Any) -> tuple[Checkpointer, int]:
    made = Checkpointer(DirectoryStore(folder), "runs/r.train", epoch)
    made.register(**objects)
    start = made.restore()
    return made, start.step if start else 0


def take(folder: Path, epoch: int, make: Any, batches: int, workers: int) -> list[list[int]]:
    """Use some batches, save after each, and return them."""
    loader = make(workers)
    ck, done = checkpointer(folder, epoch, loader=loader)
    seen: list[list[int]] = []
    while True:
        for (batch,) in loader:
            seen.append(batch.tolist())
            done += 1
            ck.save(done)
            if len(seen) == batches:
                return seen


def ours(workers: int) -> Any:
    from trainlet.integrations.pytorch import Loader

    return Loader(numbers(), tl.checkpoints.Sampler(23, batch=4, seed=3), num_workers=workers)


def torchdatas(workers: int) -> Any:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(numbers(), batch_size=4, num_workers=workers)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 1)])
def test_I11_our_loader_goes_on_with_any_number_of_workers(tmp_path: Path, before: int, after: int) -> None:
    straight = take(tmp_path / "a", 1, ours, 10, 0)
    for stop in (2, 5, 6, 7):
        folder = tmp_path / str(stop)
        begun = take(folder, 1, ours, stop, before)
        assert begun + take(folder, 2, ours, 10 - stop, after) == straight


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_is_registered_as_it_is(tmp_path: Path, workers: int) -> None:
    straight = take(tmp_path / "a", 1, torchdatas, 5, workers)
    begun = take(tmp_path / "b", 1, torchdatas, 2, workers)
    assert begun + take(tmp_path / "b", 2, torchdatas, 3, workers) == straight
