"""Whether a store keeps the condition of a PUT, asked before anybody writes there and noted in `store.json`.

Everything in the log rests on one promise: of many that create a key, one wins. A store that answers every one of them
with success looks the same until two writers meet. So the first writer races for keys of its own, and what it saw is
kept beside the runs; `trainlet doctor --store` looks again. A directory is not raced: link(2) is its condition.
"""

from __future__ import annotations

import contextlib
import json

from trainlet.core.models import canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import probes

KEY = "store.json"
FORMAT = 1


def broken(store: ObjectStore) -> str:
    """Return what this store does with writers that meet, in words, or an empty text when exactly one wins."""
    if store.url.startswith("file:"):
        return ""
    seen = _noted(store)
    if seen is None:
        seen = probes.breaks_promise(store)
        _note(store, seen)
    return seen


def correct(store: ObjectStore, seen: str) -> None:
    """Replace what is noted by what another look at the store saw; nothing is noted where nobody writes yet."""
    if not store.url.startswith("file:") and _noted(store) not in (None, seen):
        store.delete(KEY)
        _note(store, seen)


def _note(store: ObjectStore, seen: str) -> None:
    with contextlib.suppress(FileExistsError):
        store.create(KEY, canonical_json({"format": FORMAT, "create_once": not seen, "seen": seen}))


def _noted(store: ObjectStore) -> str | None:
    """Return what is noted; None when nothing is, or nothing that can be read."""
    try:
        fields = json.loads(store.get(KEY))
        return "" if fields["create_once"] is True else str(fields["seen"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
