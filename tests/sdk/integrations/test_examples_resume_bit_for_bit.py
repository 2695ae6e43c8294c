"""A run that is resumed from any step ends with the same bits as one that never stopped, in each library's own loop.

`make test-torch` runs these with PyTorch and the libraries on top of it; without them, those tests are skipped.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.specs import CheckpointPolicy, Keep
from trainlet_functions.checkpoints import Checkpointer

EXAMPLES = Path(__file__).parents[3] / "examples" / "checkpoints"
EACH = CheckpointPolicy(every_s=1e-9, keep=Keep(last=100))
NEEDS = {
    "pytorch_loop": ["torch"],
    "lightning_fit": ["lightning"],
    "transformers_trainer": ["transformers", "accelerate"],
    "sklearn_partial_fit": ["sklearn"],
}
# Steps before, at and behind the end of an epoch (16, 7, 8 and 15 batches).
STOPS = {
    "pytorch_loop": (24, [1, 7, 15, 16, 17]),
    "lightning_fit": (12, [1, 3, 6, 7, 8]),
    "transformers_trainer": (12, [1, 5, 8, 9]),
    "sklearn_partial_fit": (20, [1, 14, 15, 16]),
}


def example(name: str) -> Any:
    for needed in NEEDS[name]:
        pytest.importorskip(needed)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits(weights: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(value).tobytes() for name, value in weights.items()}


def checkpointer(folder: Path, epoch: int, leave_out: str = "") -> Checkpointer:
    made = Checkpointer(DirectoryStore(folder), "runs/r.train", epoch, policy=EACH)
    if leave_out:
        register = made.register

        def without(**objects: Any) -> None:
            objects.pop(leave_out)
            register(**objects)

        made.register = without  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("name", NEEDS)
def test_I10_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path, name: str) -> None:
    train = example(name).train
    steps, stops = STOPS[name]
    straight = bits(train(checkpointer(tmp_path / "straight", 1), steps))
    for stop in stops:
        train(checkpointer(tmp_path / str(stop), 1), stop)
        resumed = train(checkpointer(tmp_path / str(stop), 2), steps)
        assert bits(resumed) == straight, f"resumed at {stop}"


@pytest.mark.parametrize("left_out", ["model", "optimizer", "schedule", "loader", "random"])
def test_I10_leaving_out_any_part_of_a_plain_loop_makes_it_differ(tmp_path: Path, left_out: str) -> None:
    train = example("pytorch_loop").train
    straight = bits(train(checkpointer(tmp_path / "straight", 1), 24))
    train(checkpointer(tmp_path / "other", 1, left_out), 7)
    assert bits(train(checkpointer(tmp_path / "other", 2, left_out), 24)) != straight


@pytest.mark.parametrize("left_out", ["model", "sampler", "noise"])
def test_I10_leaving_out_any_part_of_an_estimator_makes_it_differ(tmp_path: Path, left_out: str) -> None:
    train = example("sklearn_partial_fit").train
    straight = bits(train(checkpointer(tmp_path / "straight", 1), 20))
    train(checkpointer(tmp_path / "other", 1, left_out), 7)
    assert bits(train(checkpointer(tmp_path / "other", 2, left_out), 20)) != straight
