"""docs/checkpoints.md is enough to read what was saved: a reader that knows nothing else gets every value back."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import pytest
from tests.functions.checkpoints import independent_reader as reader

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import Checkpointer, Shard, arrays, layouts, receipts, savers
from trainlet_functions.checkpoints.stages import Snapshot

PREFIX = "runs/r.train"
SOURCE = Path(__file__).with_name("independent_reader.py").read_text()


def test_the_reader_has_no_line_of_trainlet_and_its_hash_is_blake3() -> None:
    imports = {line.split()[1].split(".")[0] for line in SOURCE.splitlines() if line.startswith(("import ", "from "))}
    assert imports == {"__future__", "json", "pathlib", "typing", "numpy"}
    for size in (0, 1, 63, 64, 65, 1023, 1024, 1025, 2048, 3073, 9000):
        data = bytes(index % 251 for index in range(size))
        assert reader.blake3(data) == blake3.blake3(data).hexdigest()


def test_every_value_comes_back(tmp_path: Path) -> None:
    store, dice = DirectoryStore(tmp_path), np.random.default_rng(3)
    weights = {
        kind: (dice.random((3, 2)) * 100).astype(kind)
        for kind in ("float64", "float32", "float16", "int64", "int8", "uint16", "bool", "complex64")
    }
    odd: dict[Any, Any] = {
        1: np.float64(0.5),
        "inf": float("inf"),
        "betas": (0.9, 0.999),
        "none": None,
        "text": "\u00e4",
    }
    made = Checkpointer(store, PREFIX, 4)
    made.register(weights=weights, odd=odd, scalar=np.array(7.5), empty=np.zeros((0, 3)), frozen=np.ones(300))
    for step in (1, 2):
        weights["float32"][:] = step
        made.save(step, metrics={"loss": 1e-9})
    tl.checkpoints.pin("r.train", 2, store=str(tmp_path))
    step, found = reader.read(tmp_path, PREFIX)
    assert step == 2 and found["odd"] == odd and found["scalar"] == 7.5 and found["empty"].shape == (0, 3)
    assert all((found["weights"][kind] == array).all() for kind, array in weights.items())
    assert set(found["frozen"]) == {1.0}, "by a reference to the first pack"
    record = reader.newest_record(tmp_path / PREFIX)
    assert record["kind"] == "tag" and record["state"]["tags"]["pin.2"] == record["state"]["commits"][-1]["manifest"]
    for path in (tmp_path / PREFIX / "packs").rglob("*.safetensors"):
        assert reader.pack_header(path)


def ranks_save(store: Any, whole: np.ndarray[Any, Any], absent: int | None) -> None:
    """Save as three ranks, each a block of rows and a number of its own; one may stay away."""

    def one(rank: int) -> None:
        saver = savers.Saver(store, PREFIX, 1, ranks=receipts.Ranks(rank, 3, 0.3 if absent else 30.0))
        state = {"w": Shard(whole[2 * rank : 2 * rank + 2], (2 * rank, 0), whole.shape), "own": np.array([rank])}
        tensors = tuple(arrays.describe(name, value) for name, value in state.items())
        layout = layouts.of(tensors)
        memory = memoryview(bytearray(layout.size_bytes))
        arrays.copy_out(state, layout, memory)
        trees = {name: {"$ck": "tensor", "name": name, "as": "numpy"} for name in state}
        while True:
            with contextlib.suppress(savers.NotYet):
                saver.acquire()
                break
        with contextlib.suppress(receipts.Late):
            saver.commit(Snapshot(1, 5, trees, tensors, {}, {}), memory, "periodic")

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(3) if rank != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_ranks_saved_together_comes_back_for_each(tmp_path: Path) -> None:
    whole = np.arange(18.0).reshape(6, 3)
    ranks_save(DirectoryStore(tmp_path), whole, absent=None)
    for rank in range(3):
        step, found = reader.read(tmp_path, PREFIX, rank)
        assert step == 5 and (found["w"] == whole).all() and found["own"].tolist() == [rank]


def test_receipts_are_read_by_the_same_rules(tmp_path: Path) -> None:
    whole = np.arange(18.0).reshape(6, 3)
    ranks_save(DirectoryStore(tmp_path), whole, absent=2)
    folder = tmp_path / PREFIX / "parts" / "000001-000000000005"
    assert {path.name for path in folder.iterdir()} == {"plan.json", "000001.json"}
    receipt = reader.sealed((folder / "000001.json").read_bytes())
    assert set(receipt) == {"b3", "bytes_new", "rank", "reused", "tensors", "trees"} and receipt["rank"] == 1
    (part,) = receipt["tensors"]["w"]["slices"]
    assert receipt["tensors"]["w"]["shape"] == [6, 3] and (part["offset"], part["shape"]) == ([2, 0], [2, 3])
    plan = reader.sealed((folder / "plan.json").read_bytes())
    assert plan["rank"] == 0 and set(plan["tensors"]) == {"w", "own"}


@pytest.mark.parametrize("folder", ["log", "manifests", "packs"])
def test_the_reader_finds_a_flipped_bit(tmp_path: Path, folder: str) -> None:
    made = Checkpointer(DirectoryStore(tmp_path), PREFIX, 1)
    made.register(w=np.ones(4))
    made.save(1)
    path = min((tmp_path / PREFIX / folder).rglob("*.*"))
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 4
    path.chmod(0o644)
    path.write_bytes(raw)
    with pytest.raises((reader.Damaged, IndexError, ValueError)):  # the log falls back to a record without a commit
        reader.read(tmp_path, PREFIX)
