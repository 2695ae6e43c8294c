"""A store that lies about conditions is found before anything depends on it."""

from __future__ import annotations

from pathlib import Path

from tests.functions.checkpoints import faulty_stores

from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import probes


def test_a_directory_keeps_its_promise_and_is_left_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert probes.breaks_promise(store) == ""
    assert list(store.list("")) == []


def test_a_store_that_ignores_conditions_is_found() -> None:
    assert "were told that they won" in probes.breaks_promise(faulty_stores.CarelessStore())


def test_what_can_be_saved_in_a_grace_follows_from_the_speed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    found = probes.speed(store, objects=2, object_bytes=1 << 16)
    assert found.put_bytes_per_s > 0 and found.get_bytes_per_s > 0
    assert list(store.list("")) == []
    assert probes.Speed(100e6, 1.0).saves_within(30) == 1_500_000_000
    assert probes.Speed(100e6, 1.0).saves_within(4) == 0


def test_wrong_ranges_and_wrong_listings_are_found(tmp_path: Path) -> None:
    store = faulty_stores.CarefulStore()
    assert probes.wrong_ranges(store) == probes.wrong_listing(store) == ""
    assert store.objects == {}
    store.get_range = lambda key, start, end: store.get(key)
    assert "bytes 0 to 1" in probes.wrong_ranges(store)
    listed = store.list
    store.list = lambda prefix, limit=None: reversed(list(listed(prefix, limit)))
    assert "order" in probes.wrong_listing(store)
    store.list = listed
    store.delete = lambda key: None
    assert "still listed" in probes.wrong_listing(store)
