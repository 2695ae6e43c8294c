"""C1: any bit of any object may flip, any object may be cut short or be missing: what is older and whole is used."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from trainlet.client.stores import DirectoryStore
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import canonical_json
from trainlet_functions.checkpoints import Checkpointer, packs
from trainlet_functions.checkpoints.packs import Slice, TensorEntry

PREFIX = "runs/r.train"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore(tmp_path / "store")
    weights = np.zeros(6)
    saver = Checkpointer(made, PREFIX, 1)
    saver.register(weights=weights)
    for step in (1, 2):
        weights[:] = step
        saver.save(step)
    return made


def restored(store: DirectoryStore, epoch: int = 2) -> tuple[int, float]:
    weights = np.zeros(6)
    reader = Checkpointer(store, PREFIX, epoch)
    reader.register(weights=weights)
    progress = reader.restore()
    assert progress is not None and len(set(weights)) == 1
    return progress.step, float(weights[0])


def newest(store: DirectoryStore, folder: str) -> Path:
    files = [store.local_path(item.key) for item in store.list(f"{PREFIX}/{folder}/")]
    return max((path for path in files if path), key=lambda path: path.stat().st_mtime_ns)


def replace(path: Path, raw: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(raw)


@pytest.mark.parametrize("folder", ["log", "manifests", "packs"])
@pytest.mark.parametrize("seed", range(12))
def test_I7_C1_a_flipped_bit_is_found_and_the_step_before_is_used(
    store: DirectoryStore, folder: str, seed: int
) -> None:
    path = newest(store, folder)
    raw = bytearray(path.read_bytes())
    data_begin = 8 + int.from_bytes(raw[:8], "little") if folder == "packs" else 0  # a pack's header is never read
    bit = random.Random(seed).randrange(data_begin * 8, len(raw) * 8)
    raw[bit // 8] ^= 1 << bit % 8
    replace(path, bytes(raw))
    assert restored(store) == (1, 1.0)


@pytest.mark.parametrize("folder", ["log", "manifests", "packs"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_I8_C1_an_object_that_is_cut_short_falls_back(store: DirectoryStore, folder: str, share: float) -> None:
    path = newest(store, folder)
    raw = path.read_bytes()
    replace(path, raw[: int(len(raw) * share)])
    assert restored(store) == (1, 1.0)


@pytest.mark.parametrize("folder", ["manifests", "packs"])
def test_I8_C1_a_missing_object_falls_back(store: DirectoryStore, folder: str) -> None:
    newest(store, folder).unlink()
    assert restored(store) == (1, 1.0)


def test_a_writer_goes_on_behind_a_damaged_record(store: DirectoryStore) -> None:
    replace(newest(store, "log"), b"{}")
    weights = np.zeros(6)
    made = Checkpointer(store, PREFIX, 2)
    made.register(weights=weights)
    assert made.restore() is not None
    weights[:] = 7
    made.save(7)
    assert restored(store, 3) == (7, 7.0)


def test_I19_files_that_are_no_records_are_passed_over(store: DirectoryStore) -> None:
    for name in (".tmp", "notes.txt", "00000.json", "9999999990.json.bak"):
        path = newest(store, "log").with_name(name)
        path.write_text("junk")
    assert restored(store) == (2, 2.0)


def test_a_checkpoint_of_a_newer_format_is_said_and_not_passed_over(store: DirectoryStore) -> None:
    manifest_path = newest(store, "manifests")
    fields = {**json.loads(manifest_path.read_bytes()), "format": 99}
    raw = canonical_json(fields)
    replace(manifest_path, raw)
    log_path = newest(store, "log")
    record = json.loads(log_path.read_bytes())
    record["state"]["commits"][-1]["digest"] = blake3(raw).hexdigest()
    del record["b3"]
    replace(log_path, canonical_json({**record, "b3": blake3(canonical_json(record)).hexdigest()}))
    with pytest.raises(UserError, match=r"format 99.*Update trainlet"):
        restored(store)


def slice_of(**changes: Any) -> Slice:
    fields: dict[str, Any] = {"shape": (2, 3), "pack": f"{PREFIX}/packs/aa/x", "range": (8, 56), "b3": "0" * 64}
    return Slice(**{**fields, **changes})


@pytest.mark.parametrize(
    "slices",
    [
        (slice_of(pack="runs/other/packs/aa/x"),),
        (slice_of(pack=f"{PREFIX}/packs/../../other"),),
        (slice_of(range=(8, 57)),),
        (slice_of(range=(0, 48)),),
        (slice_of(range=(56, 8)),),
        (slice_of(offset=(1, 0)),),
        (slice_of(offset=(-1, 0)),),
        (slice_of(), slice_of()),
        (slice_of(shape=(1, 3), range=(8, 32)),),
        (slice_of(shape=(1, 3), range=(8, 32)), slice_of(shape=(1, 3), range=(8, 32))),
        (slice_of(shape=(2, 2), range=(8, 40)), slice_of(offset=(0, 1), shape=(1, 2), range=(8, 24))),
    ],
)
def test_I17_slices_that_lie_are_refused(slices: tuple[Slice, ...]) -> None:
    with pytest.raises(PlatformError):
        packs.check("w", TensorEntry(dtype="float64", shape=(2, 3), slices=slices), PREFIX)
    packs.check("w", TensorEntry(dtype="float64", shape=(2, 3), slices=(slice_of(),)), PREFIX)
