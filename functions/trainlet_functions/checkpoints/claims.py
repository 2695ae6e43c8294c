"""Who may write where the store cannot say it: one writer, by a claim that everybody can list.

On a store that ignores conditions (`conditions`) an append can overwrite somebody else's. Three rules take its place. A
writer puts its claim first and reads the log after, and looks at the claims again after each append, before it believes
it: of two that overlap, at least one sees the other. The record of an epoch lies behind all places of older epochs
(`SEQUENCES`), so what a superseded writer still sends lands where nobody looks. And only the training API, which gives an
epoch to one attempt, may take over from a writer that has not let go; a script or a person is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import uuid
from dataclasses import dataclass

from trainlet.core.errors import Fenced, PlatformError, UserError
from trainlet.core.models import canonical_json
from trainlet.core.protocols import ObjectStore

SEQUENCES = 10**6  # places in the log for each epoch
MAX_EPOCH = 9_000
_NAME = re.compile(r"(\d{6})-[0-9a-f]{12}\.json")


class Occupied(UserError):
    """Raised when somebody else holds the claim, and nobody has said that they lost it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write one run, as long as nobody comes with a newer one."""

    store: ObjectStore
    prefix: str
    epoch: int
    key: str

    def check(self) -> None:
        """Raise Fenced unless this is still the newest claim."""
        standing = _standing(self.store, self.prefix)
        newest = max(standing.values(), default=0)
        if self.key not in standing or newest > self.epoch:
            raise Fenced(f"Attempt {self.epoch} was superseded ({self.prefix}); nothing that it saves counts any more.")

    def release(self) -> None:
        """Let the next writer in."""
        with contextlib.suppress(PlatformError, OSError):  # what stays is told to the next writer
            self.store.delete(self.key)


def take(store: ObjectStore, prefix: str, epoch: int, *, given: bool) -> Claim:
    """Become the writer of a run. `given` says that the training API gave this epoch out, and to nobody else.

    Raises Fenced when a newer epoch is there, Occupied when somebody else holds the claim.
    """
    if epoch > MAX_EPOCH:
        raise PlatformError(f"{prefix} had {epoch} writers, which is too many for a store that ignores conditions.")

    def look(mine: str | None) -> dict[str, int]:
        others = {key: number for key, number in _standing(store, prefix).items() if key != mine}
        if max(others.values(), default=0) > epoch:
            raise Fenced(f"Attempt {epoch} was superseded by attempt {max(others.values())} ({prefix}).")
        blocking = [key for key, number in others.items() if not given or number == epoch]
        if blocking:
            raise Occupied(_occupied(store, prefix, blocking[0]))
        return others

    look(None)
    key = f"{prefix}/writers/{epoch:06d}-{uuid.uuid4().hex[:12]}.json"
    who = {"epoch": epoch, "host": socket.gethostname(), "process": os.getpid()}
    store.create(key, canonical_json(who))
    claim = Claim(store, prefix, epoch, key)
    try:
        superseded = look(key)
    except (Fenced, Occupied):
        claim.release()
        raise
    for older in superseded:
        store.delete(older)
    return claim


def clear(store: ObjectStore, prefix: str) -> int:
    """Remove all claims, for a person who knows that their writers are dead; returns how many there were."""
    standing = _standing(store, prefix)
    for key in standing:
        store.delete(key)
    return len(standing)


def _standing(store: ObjectStore, prefix: str) -> dict[str, int]:
    """Return the claims that are there, with their epochs."""
    folder = f"{prefix}/writers/"
    names = {item.key: _NAME.fullmatch(item.key.removeprefix(folder)) for item in store.list(folder)}
    return {key: int(match[1]) for key, match in names.items() if match}


def _occupied(store: ObjectStore, prefix: str, key: str) -> str:
    who = "somebody"
    with contextlib.suppress(OSError, PlatformError, ValueError, KeyError, TypeError):
        fields = json.loads(store.get(key))
        who = f"process {fields['process']} on {fields['host']} (attempt {fields['epoch']})"
    return (
        f"{prefix} in {store.url} is being written by {who}, and that store ignores the condition of a PUT, so it may have one "
        "writer only. Wait until it has ended. When it is dead for certain, let go of its claim: "
        f"trainlet checkpoints unlock {prefix.removeprefix('runs/')} --store {store.url}"
    )
