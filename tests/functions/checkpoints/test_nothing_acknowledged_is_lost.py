"""C1: an acknowledged checkpoint is never lost and never mixed, whoever is killed and whatever is damaged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.errors import BudgetReached, Canceled, Fenced, PlatformError, Preempted, UserError
from trainlet.core.protocols import ObjectInfo
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Checkpointer, fence, list_checkpoints, verify

PREFIX = "runs/r.train"
WRITER = """
import sys, numpy as np
from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import Checkpointer
store, epoch = DirectoryStore(__import__("pathlib").Path(sys.argv[1])), int(sys.argv[2])
left, right = np.zeros(2000), np.zeros(2000)
ck = Checkpointer(store, "runs/r.train", epoch)
ck.register(left=left, right=right)
start = ck.restore()
for step in range(start.step if start else 0, 10_000):
    left[:] = step + 1
    right[:] = step + 1
    ck.save(step + 1)
    print(step + 1, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def checkpointer(store: Any, epoch: int = 1, **options: Any) -> tuple[Checkpointer, np.ndarray[Any, Any]]:
    array = np.zeros(50)
    made = Checkpointer(store, PREFIX, epoch, **options)
    made.register(array=array)
    return made, array


def save(made: Checkpointer, array: np.ndarray[Any, Any], step: int) -> None:
    array[:] = step
    made.save(step)


def test_I1_C1_a_killed_writer_loses_nothing_that_it_acknowledged(store: DirectoryStore) -> None:
    dice = random.Random(7)
    folder = Path(store.url.removeprefix("file://"))
    for epoch in range(1, 9):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(epoch)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            acknowledged = 0
            for _ in range(dice.randrange(1, 12)):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        left, right = np.zeros(2000), np.zeros(2000)
        reader = Checkpointer(store, PREFIX, 100 + epoch if epoch == 8 else epoch + 1)
        reader.register(left=left, right=right)
        progress = reader.restore()
        assert progress is not None and progress.step >= acknowledged
        assert set(left) == set(right) == {float(progress.step)}
        assert verify(store, PREFIX) == []


class Breaking:
    """A store that breaks at one call: before it does anything, or after it did."""

    def __init__(self, store: DirectoryStore, at: int, after: bool) -> None:
        self._store, self._at, self._after, self.calls = store, at, after, 0
        self.url = store.url

    def __getattr__(self, name: str) -> Any:
        action = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at and not self._after:
                raise PlatformError("the connection broke before")
            result = action(*arguments, **named)
            if self.calls == self._at:
                raise PlatformError("the connection broke after")
            return result

        return call

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        return self._store.list(prefix, limit)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
def test_I2_C1_a_store_that_breaks_at_any_call_leaves_a_whole_checkpoint(
    store: DirectoryStore, at: int, after: bool
) -> None:
    first, array = checkpointer(store)
    save(first, array, 1)
    breaking = Breaking(store, at, after)
    second, array = checkpointer(breaking, 2)
    acknowledged = 1
    for step in (2, 3, 4, 5):
        try:
            save(second, array, step)
            acknowledged = step
        except PlatformError:
            break
    third, array = checkpointer(store, 3)
    progress = third.restore()
    assert progress is not None and progress.step >= acknowledged
    assert set(array) == {float(progress.step)}


def test_I3_C1_a_superseded_writer_is_fenced_and_nothing_it_writes_counts(store: DirectoryStore) -> None:
    old, array = checkpointer(store, 1)
    save(old, array, 1)
    fence(store, PREFIX, 2)
    with pytest.raises(Fenced, match="superseded by attempt 2"):
        save(old, array, 2)
    assert [note.step for note in list_checkpoints(store, PREFIX)] == [1]


@pytest.mark.parametrize("kind", ["packs", "manifests"])
def test_C1_a_flipped_bit_is_found_and_the_checkpoint_before_is_used(store: DirectoryStore, kind: str) -> None:
    said: list[str] = []
    made, array = checkpointer(store)
    save(made, array, 1)
    before = {item.key for item in store.list(f"{PREFIX}/{kind}/")}
    save(made, array, 2)
    (newest,) = {item.key for item in store.list(f"{PREFIX}/{kind}/")} - before
    path = store.local_path(newest)
    assert path is not None
    raw = bytearray(path.read_bytes())
    raw[-10] ^= 1
    path.chmod(0o644)
    path.write_bytes(raw)
    reader, array = checkpointer(store, 2, emit=lambda name, fields: said.append(f"{name} {fields}"))
    progress = reader.restore()
    assert progress is not None and progress.step == 1
    assert set(array) == {1.0}
    assert any("step 2 cannot be used" in line for line in said)


def test_a_missing_pack_falls_back(store: DirectoryStore) -> None:
    made, array = checkpointer(store)
    save(made, array, 1)
    before = {item.key for item in store.list(f"{PREFIX}/packs/")}
    save(made, array, 2)
    for key in {item.key for item in store.list(f"{PREFIX}/packs/")} - before:
        store.delete(key)
    reader, array = checkpointer(store, 2)
    progress = reader.restore()
    assert progress is not None and progress.step == 1


def test_retention_keeps_the_last_three_and_the_best(store: DirectoryStore) -> None:
    made, array = checkpointer(store, policy=CheckpointPolicy(on_improve=("loss", "min")))
    for step, loss in enumerate([0.5, 0.1, 0.4, 0.3], 1):
        array[:] = step
        made.step(step, metrics={"loss": loss})
    for step in range(5, 9):
        save(made, array, step)
    assert [note.step for note in list_checkpoints(store, PREFIX)] == [8, 7, 6, 2]
    assert verify(store, PREFIX) == []
    assert len(list(store.list(f"{PREFIX}/packs/"))) == 4


@pytest.mark.parametrize(
    ("code", "signal_"),
    [("preempted", Preempted), ("canceled", Canceled), ("budget", BudgetReached), ("timeout", Canceled)],
)
def test_a_wish_to_stop_is_obeyed_after_a_save(store: DirectoryStore, code: str, signal_: type[BaseException]) -> None:
    made, _ = checkpointer(store, should_stop=lambda: code)
    with pytest.raises(signal_):
        made.step(7)
    assert [(note.step, note.reason) for note in list_checkpoints(store, PREFIX)] == [(7, code)]


def test_three_failed_saves_in_a_row_are_raised(store: DirectoryStore, tmp_path: Path) -> None:
    said: list[str] = []
    policy = CheckpointPolicy(every_s=1e-9)
    made, _ = checkpointer(store, policy=policy, emit=lambda kind, fields: said.append(kind))
    made.step()
    folder = tmp_path / "store" / PREFIX / "log"
    folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    made.step()
    made.step()
    with pytest.raises(PlatformError, match="3 times in a row"):
        made.step()
    assert said.count("warning") == 3


def test_what_needs_pickle_is_refused_by_name(store: DirectoryStore) -> None:
    made = Checkpointer(store, PREFIX, 1)
    with pytest.raises(UserError, match=r"model=.*got a object"):
        made.register(model=object())
    with pytest.raises(UserError, match=r"state\.inner is a builtins\.object, which cannot .*pickle.*state_dict"):
        made.register(state={"inner": object()})


def test_another_shape_is_named_with_both(store: DirectoryStore) -> None:
    made, array = checkpointer(store)
    save(made, array, 1)
    other = Checkpointer(store, PREFIX, 2)
    other.register(array=np.zeros(3))
    with pytest.raises(UserError, match=r"\(3,\).*\(50,\)"):
        other.restore()


class Optimizer:
    """Has a state like PyTorch's optimizers: nested, with ints as keys."""

    def __init__(self) -> None:
        self.state: dict[Any, Any] = {}

    def state_dict(self) -> dict[Any, Any]:
        return self.state

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.state = state


def test_nested_state_with_ints_as_keys_comes_back_as_it_was(store: DirectoryStore) -> None:
    saved = Optimizer()
    saved.state = {"state": {0: {"step": 3, "exp": np.arange(4.0)}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]}
    rng = np.random.default_rng(5)
    made = Checkpointer(store, PREFIX, 1)
    made.register(optim=saved, rng=rng)
    made.save(1)
    expected = rng.random()
    loaded, other = Optimizer(), np.random.default_rng(6)
    reader = Checkpointer(store, PREFIX, 2)
    reader.register(optim=loaded, rng=other)
    reader.restore()
    assert loaded.state["state"][0]["step"] == 3
    assert (loaded.state["state"][0]["exp"] == np.arange(4.0)).all()
    assert loaded.state["groups"] == [{"lr": 0.1, "betas": (0.9, 0.999)}]
    assert other.random() == expected
