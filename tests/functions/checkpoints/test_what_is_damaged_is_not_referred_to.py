"""A new checkpoint is whole by itself: it leans on no bytes that nobody has verified, and on no metric being finite."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints

PREFIX = "runs/r/train"


def test_C1_a_step_repeated_after_damage_is_written_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    weights = numpy.zeros(4)
    first = Checkpointer(store, PREFIX, 1)
    first.register(weights=weights)
    for step in (1, 2):
        weights[:] = step
        first.save(step)
    newest = max((tmp_path / "store").rglob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")

    again = numpy.zeros(4)
    second = Checkpointer(store, PREFIX, 2)
    second.register(weights=again)
    progress = second.restore()
    assert progress is not None
    assert progress.step == 1
    again[:] = 2  # the same training gives the same bytes
    second.save(2)

    found = numpy.zeros(4)
    third = Checkpointer(store, PREFIX, 3)
    third.register(weights=found)
    progress = third.restore()
    assert progress is not None
    assert progress.step == 2
    assert found.tolist() == [2.0] * 4


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "store")
    first = Checkpointer(store, PREFIX, 1)
    first.register(frozen=numpy.ones(4))
    first.save(1)
    second = Checkpointer(store, PREFIX, 2)
    second.register(frozen=numpy.zeros(4))
    assert second.restore() is not None
    second.save(2)
    assert len(list((tmp_path / "store").rglob("*.safetensors"))) == 1


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_does_not_end_training_and_is_never_best(tmp_path: Path, loss: float) -> None:
    store = DirectoryStore(tmp_path / "store")
    saver = Checkpointer(store, PREFIX, 1, policy=CheckpointPolicy(on_improve=("loss", "min")))
    saver.register(weights=numpy.zeros(2))
    saver.step(metrics={"loss": loss})
    assert list_checkpoints(store, PREFIX) == []
    saver.save(2, metrics={"loss": loss, "accuracy": 0.5})
    saver.step(3, metrics={"loss": 1.0})
    assert [(note.step, note.metrics) for note in list_checkpoints(store, PREFIX)] == [
        (3, {"loss": 1.0}),
        (2, {"accuracy": 0.5}),
    ]
