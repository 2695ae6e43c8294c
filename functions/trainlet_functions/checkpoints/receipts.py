"""Many ranks, one checkpoint: each rank delivers its part, the first one commits when it has them all.

A receipt is created once under `parts/<epoch>-<step>/<rank>.json` after the rank's packs are in the store. No rank waits
for another but the first, and that one not for ever: a part that does not come leaves the checkpoint uncommitted, and
training goes on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from pydantic import ValidationError

from trainlet.core.errors import Fenced, PlatformError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints.log import State
from trainlet_functions.checkpoints.packs import TensorEntry

if TYPE_CHECKING:
    from trainlet_functions.checkpoints.savers import Ranks

POLL_S = 0.05
_PART = re.compile(r"(\d+)-\d+/\d+\.json")


class Receipt(Value):
    """What one rank has in the store: its trees, its tensors, and the packs of earlier checkpoints among theirs."""

    rank: int
    trees: dict[str, Any]
    tensors: dict[str, TensorEntry]
    bytes_new: int = 0
    reused: tuple[str, ...] = ()


def deliver(store: ObjectStore, prefix: str, epoch: int, step: int, receipt: Receipt) -> None:
    """Write a receipt; one that is there already stays, it is of the same step of the same attempt."""
    fields = receipt.model_dump(mode="json")
    body = canonical_json({**fields, "b3": blake3(canonical_json(fields)).hexdigest()})
    try:
        store.create(_key(prefix, epoch, step, receipt.rank), body)
    except FileExistsError:
        return


def collect(
    store: ObjectStore, prefix: str, epoch: int, step: int, ranks: Ranks, goes_on: Callable[[], None]
) -> list[Receipt]:
    """Wait for the receipts of all other ranks; raises PlatformError naming the missing ones when the time is up."""
    missing = set(range(1, ranks.world))
    found: list[Receipt] = []
    deadline = time.monotonic() + ranks.timeout_s
    pause_s = POLL_S
    while True:
        for rank in sorted(missing):
            try:
                raw = store.get(_key(prefix, epoch, step, rank))
            except FileNotFoundError:
                continue
            found.append(_read(raw, rank))
            missing.discard(rank)
        if not missing:
            return found
        if time.monotonic() > deadline:
            late = ", ".join(map(str, sorted(missing)))
            raise PlatformError(f"Rank {late} did not deliver step {step} within {ranks.timeout_s:g} s.")
        goes_on()
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 1.5)


def merged(parts: list[Receipt]) -> dict[str, TensorEntry]:
    """Return the tensors of all ranks: shards of the same tensor become one entry."""
    tensors: dict[str, TensorEntry] = {}
    for part in parts:
        for name, entry in part.tensors.items():
            before = tensors.get(name)
            if before is None:
                tensors[name] = entry
                continue
            if (before.dtype, before.shape) != (entry.dtype, entry.shape):
                raise PlatformError(f"Ranks do not agree about {name!r}: {before.dtype}{before.shape} and others.")
            have = {(one.offset, one.shape) for one in before.slices}
            more = tuple(one for one in entry.slices if (one.offset, one.shape) not in have)  # replicas count once
            tensors[name] = before.model_copy(update={"slices": (*before.slices, *more)})
    return tensors


def check_epoch(state: State, epoch: int, prefix: str) -> None:
    """Raise Fenced when the log belongs to a newer attempt."""
    if state.epoch > epoch:
        raise Fenced(
            f"Attempt {epoch} was superseded by attempt {state.epoch} ({prefix}); nothing that it saves counts."
        )


def epoch_of(key: str, prefix: str) -> int | None:
    """Return the epoch in the key of a receipt."""
    found = _PART.fullmatch(key.removeprefix(f"{prefix}/parts/"))
    return int(found[1]) if found else None


def _key(prefix: str, epoch: int, step: int, rank: int) -> str:
    return f"{prefix}/parts/{epoch:06d}-{step:012d}/{rank:06d}.json"


def _read(raw: bytes, rank: int) -> Receipt:
    try:
        fields = json.loads(raw)
        digest = fields.pop("b3")
        if digest != blake3(canonical_json(fields)).hexdigest():
            raise ValueError("its blake3 differs")
        return Receipt.model_validate(fields)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise PlatformError(f"The part of rank {rank} is damaged: {error}") from error
