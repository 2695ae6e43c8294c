"""A store that lies about conditions is found before anything depends on it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import probes

_spec = importlib.util.spec_from_file_location("faulty_stores", Path(__file__).parent / "faulty_stores.py")
assert _spec and _spec.loader
faulty_stores = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(faulty_stores)


def test_a_directory_keeps_its_promise_and_is_left_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    assert probes.breaks_promise(store) == ""
    assert list(store.list("")) == []


def test_a_store_that_ignores_conditions_is_found() -> None:
    assert "were told that they won" in probes.breaks_promise(faulty_stores.CarelessStore())
