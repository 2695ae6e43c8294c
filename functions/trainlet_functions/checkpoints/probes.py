"""Whether a store keeps the one promise that everything here stands on: of many that create a key, exactly one wins."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from trainlet.core.protocols import ObjectStore

RACERS = 8
ROUNDS = 4


def breaks_promise(store: ObjectStore) -> str:
    """Race writers for new keys; returns what went wrong, in words, or an empty text. Leaves nothing behind."""
    for _ in range(ROUNDS):
        key = f"doctor/{uuid.uuid4().hex}"

        def create(number: int, key: str = key) -> bool:
            try:
                store.create(key, b"%d" % number)
            except FileExistsError:
                return False
            return True

        try:
            with ThreadPoolExecutor(RACERS) as pool:
                won = [number for number, win in enumerate(pool.map(create, range(RACERS))) if win]
            found = int(store.get(key))
            listed = [item.key for item in store.list(key)]
        finally:
            store.delete(key)
        if len(won) != 1:
            return f"{len(won)} of {RACERS} writers that created one key were told that they won"
        if found != won[0]:
            return "a writer was told that it won, and another one's bytes are there"
        if listed != [key]:
            return "a new object is not listed at once"
    return ""
