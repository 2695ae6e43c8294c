"""What a person does with checkpoints: list, compare, pin, remove, export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer

TASK = "r.train"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def writer(url: str) -> tuple[Checkpointer, np.ndarray]:
    weights = np.zeros((4, 2))
    made = Checkpointer(DirectoryStore(Path(url)), f"runs/{TASK}", 1, policy=CheckpointPolicy(keep=Keep(last=2)))
    made.register(weights=weights, frozen=np.ones(3), state={"lr": 0.1})
    for step in (1, 2):
        weights[:] = step
        made.save(step)
    return made, weights


def test_a_pinned_step_outlives_the_retention_until_it_is_unpinned(url: str, writer: tuple) -> None:
    made, weights = writer
    tl.checkpoints.pin(TASK, 1, store=url)
    for step in (3, 4, 5):
        weights[:] = step
        made.save(step)
    assert [note.step for note in tl.checkpoints.ls(TASK, store=url)] == [5, 4, 1]
    assert tl.checkpoints.tags(TASK, store=url) == {"pin.1": 1}
    with pytest.raises(tl.UserError, match="pinned"):
        tl.checkpoints.rm(TASK, 1, store=url)
    tl.checkpoints.unpin(TASK, 1, store=url)
    made.save(6)
    assert [note.step for note in tl.checkpoints.ls(TASK, store=url)] == [6, 5]
    assert tl.checkpoints.verify(TASK, store=url) == []


def test_what_is_removed_while_a_writer_runs_is_not_referred_to(url: str, writer: tuple) -> None:
    made, _ = writer
    with pytest.raises(tl.UserError, match="newest"):
        tl.checkpoints.rm(TASK, 2, store=url)
    tl.checkpoints.rm(TASK, 1, store=url)  # its pack has `frozen`, which step 2 refers to
    made.save(3)
    assert [note.step for note in tl.checkpoints.ls(TASK, store=url)] == [3, 2]
    assert tl.checkpoints.verify(TASK, store=url) == []


def test_a_step_that_is_not_there_is_told_with_those_that_are(url: str, writer: tuple) -> None:
    with pytest.raises(tl.NotFoundError, match=r"step 9 .*there are: 1, 2"):
        tl.checkpoints.pin(TASK, 9, store=url)


def test_steps_are_compared_by_tensor(url: str, writer: tuple) -> None:
    found = tl.checkpoints.diff(TASK, 1, 2, store=url)
    assert (found.changed, found.same, found.added, found.removed) == (("weights",), ("frozen",), (), ())


def test_an_export_is_a_safetensors_file(url: str, writer: tuple, tmp_path: Path) -> None:
    assert tl.checkpoints.export(TASK, tmp_path / "out.safetensors", store=url) == 2
    raw = (tmp_path / "out.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    begin, end = header["weights"]["data_offsets"]
    found = np.frombuffer(raw[8 + size :][begin:end]).reshape(header["weights"]["shape"])
    assert (found == 2.0).all() and found.shape == (4, 2)
    assert header["__metadata__"]["trainlet.step"] == "2"
    assert json.loads(header["__metadata__"]["trainlet.tree.state"]) == {"lr": 0.1}
