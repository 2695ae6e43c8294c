"""I7: any single bit of a log record, a manifest or a pack's data may flip, and it is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.errors import PlatformError, UserError
from trainlet_functions.checkpoints import Checkpointer, manifests, packs
from trainlet_functions.checkpoints.log import Log, Record

PREFIX = "runs/r.train"


class OneObject:
    """A store where one object has other bytes."""

    def __init__(self, store: DirectoryStore, key: str) -> None:
        self._store, self._key = store, key
        self.raw = bytearray(store.get(key))

    def get(self, key: str) -> bytes:
        return bytes(self.raw) if key == self._key else self._store.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[start:end]

    def local_path(self, key: str) -> None:
        return None


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> DirectoryStore:
    store = DirectoryStore(tmp_path_factory.mktemp("store"))
    made = Checkpointer(store, PREFIX, 1)
    made.register(weights=np.arange(5.0), note={"lr": 0.5})
    made.save(1)
    return store


def every_bit(raw: bytearray, begin: int, end: int) -> Any:
    """Flip each bit in turn, and put it back."""
    for place in range(begin, end):
        for bit in range(8):
            raw[place] ^= 1 << bit
            yield place, bit
            raw[place] ^= 1 << bit


def test_I7_every_bit_of_a_record(saved: DirectoryStore) -> None:
    key = next(iter(saved.list(f"{PREFIX}/log/"))).key
    raw = bytearray(saved.get(key))
    for place, bit in every_bit(raw, 0, len(raw)):
        with pytest.raises((ValueError, UserError, KeyError, TypeError)):
            Record.from_bytes(bytes(raw))
            pytest.fail(f"bit {bit} of byte {place} was not found")


def test_I7_every_bit_of_a_manifest(saved: DirectoryStore) -> None:
    commit = Log(saved, PREFIX).refresh().commits[-1]
    store = OneObject(saved, commit.manifest)
    for place, bit in every_bit(store.raw, 0, len(store.raw)):
        with pytest.raises(PlatformError):
            manifests.read(store, PREFIX, commit)  # type: ignore[arg-type]
            pytest.fail(f"bit {bit} of byte {place} was not found")


def test_I7_every_bit_of_the_data_in_a_pack(saved: DirectoryStore) -> None:
    commit = Log(saved, PREFIX).refresh().commits[-1]
    [part] = manifests.read(saved, PREFIX, commit).tensors["weights"].slices
    store = OneObject(saved, part.pack)
    for place, bit in every_bit(store.raw, *part.range):
        with pytest.raises(PlatformError):
            list(packs.fetch(store, [part]))  # type: ignore[arg-type]
            pytest.fail(f"bit {bit} of byte {place} was not found")
