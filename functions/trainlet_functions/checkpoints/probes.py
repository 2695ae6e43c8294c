"""Whether a store keeps what everything here stands on: of many that create a key exactly one wins, bytes come back as they
were, a listing is complete and in order. And how fast it is: what a stop can still save in the time that it has.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainlet.core.errors import PlatformError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import intervals, packs

RACERS = 8
ROUNDS = 4
OBJECTS = 16
OBJECT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a store takes and gives bytes with as many connections as a checkpoint uses."""

    put_bytes_per_s: float
    get_bytes_per_s: float

    def saves_within(self, grace_s: float) -> int:
        """Return the size of the largest state that a stop with this grace surely saves."""
        return int(intervals.SHARE * max(0.0, grace_s - intervals.MARGIN_S) * self.put_bytes_per_s)


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
            with contextlib.suppress(PlatformError, OSError):  # a writer need not be allowed to delete
                store.delete(key)
        if len(won) != 1:
            return f"{len(won)} of {RACERS} writers that created one key were told that they won"
        if found != won[0]:
            return "a writer was told that it won, and another one's bytes are there"
        if listed != [key]:
            return "a new object is not listed at once"
    return ""


def wrong_ranges(store: ObjectStore) -> str:
    """Read parts of an object; returns what went wrong, in words, or an empty text."""
    key, body = f"doctor/{uuid.uuid4().hex}", os.urandom(1 << 16)
    try:
        store.create(key, body)
        for begin, end in ((0, 1), (0, len(body)), (1000, 1001), (len(body) - 7, len(body)), (4095, 40_961)):
            if store.get_range(key, begin, end) != body[begin:end]:
                return f"bytes {begin} to {end} of an object are not what was written there"
        if store.get(key) != body:
            return "it gives other bytes than it got"
    finally:
        store.delete(key)
    return ""


def wrong_listing(store: ObjectStore) -> str:
    """List new and removed objects; returns what went wrong, in words, or an empty text."""
    folder = f"doctor/{uuid.uuid4().hex}"
    wanted = [f"{folder}/log/{name}.json" for name in ("0000000007", "0000000008", "9999999999")]
    other = f"{folder}/logs/0000000001.json"
    try:
        for key in (*reversed(wanted), other):
            store.create(key, b"x")
        if [item.key for item in store.list(f"{folder}/log/")] != wanted:
            return "new objects are not listed at once, or not in the order of their keys"
        store.delete(wanted[0])
        if [item.key for item in store.list(f"{folder}/log/")] != wanted[1:]:
            return "a removed object is still listed"
    finally:
        for key in (*wanted, other):
            store.delete(key)
    return ""


def speed(store: ObjectStore, *, objects: int = OBJECTS, object_bytes: int = OBJECT_BYTES) -> Speed:
    """Write and read objects with many connections at once, and remove them."""
    keys = [f"doctor/{uuid.uuid4().hex}" for _ in range(objects)]
    body = os.urandom(object_bytes)
    try:
        with ThreadPoolExecutor(packs.CONNECTIONS) as pool:
            began = time.perf_counter()
            list(pool.map(lambda key: store.create(key, body), keys))
            put_s = time.perf_counter() - began
            began = time.perf_counter()
            list(pool.map(store.get, keys))
            get_s = time.perf_counter() - began
    finally:
        for key in keys:
            store.delete(key)
    return Speed(objects * object_bytes / put_s, objects * object_bytes / get_s)
