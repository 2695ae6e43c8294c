"""Many ranks, one checkpoint: each rank delivers its part, the first one commits when it has them all.

A receipt is created once under `parts/<epoch>-<step>/<rank>.json` after the rank's packs are in the store. No rank waits
for another but the first, and that one not for ever: a part that does not come leaves the checkpoint uncommitted, and
training goes on. The first rank also says early what it is going to write (`plan.json`), so that replicas of it are
written once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from trainlet.core.errors import Fenced, PlatformError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import packs
from trainlet_functions.checkpoints.log import State
from trainlet_functions.checkpoints.packs import Known, TensorEntry

POLL_S = 0.05
PLAN = "plan"
_PART = re.compile(r"(\d+)-\d+/(?:\d+|plan)\.json")


class Late(PlatformError):
    """Raised when a rank did not deliver its part in time."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of how many ranks a saver works for, and what the first one knows of the others.

    `timeout_s` is how long it waits for the parts of those that take part, as far as it knows.
    """

    rank: int = 0
    world: int = 1
    timeout_s: float = 120.0
    takes_part: Callable[[int], bool] = lambda rank: True


class Receipt(Value):
    """What one rank has in the store: its trees, its tensors, and the packs of earlier checkpoints among theirs."""

    rank: int
    trees: dict[str, Any]
    tensors: dict[str, TensorEntry]
    bytes_new: int = 0
    reused: tuple[str, ...] = ()


def deliver(
    store: ObjectStore, prefix: str, epoch: int, step: int, receipt: Receipt, name: str | int | None = None
) -> None:
    """Write a receipt; one that is there already stays, it is of the same step of the same attempt."""
    fields = receipt.model_dump(mode="json")
    body = canonical_json({**fields, "b3": blake3(canonical_json(fields)).hexdigest()})
    try:
        store.create(_key(prefix, epoch, step, receipt.rank if name is None else name), body)
    except FileExistsError:
        return


def planned(
    store: ObjectStore, prefix: str, epoch: int, step: int, goes_on: Callable[[], None], wait_s: float
) -> Known:
    """Return what the first rank is writing, so that it need not be written again; nothing when it does not say so in time."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return packs.known_of(_read(store.get(_key(prefix, epoch, step, PLAN)), 0).tensors)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                return {}
        goes_on()
        time.sleep(POLL_S)


def collect(
    store: ObjectStore, prefix: str, epoch: int, step: int, ranks: Ranks, goes_on: Callable[[], None]
) -> list[Receipt]:
    """Wait for the receipts of all other ranks; raises Late naming the missing ones when the time is up."""
    missing = set(range(1, ranks.world))
    found: list[Receipt] = []
    began = time.monotonic()
    pause_s = POLL_S
    while True:
        for rank in sorted(missing):
            try:
                raw = store.get(_key(prefix, epoch, step, rank))
            except FileNotFoundError:
                continue
            found.append(_read(raw, rank))
            missing.discard(rank)
        missing = {rank for rank in missing if ranks.takes_part(rank)}
        if not missing:
            return sorted(found, key=lambda part: part.rank)
        if time.monotonic() - began > ranks.timeout_s:
            late = ", ".join(map(str, sorted(missing)))
            raise Late(f"Rank {late} did not deliver step {step} within {ranks.timeout_s:g} s.")
        goes_on()
        time.sleep(pause_s)
        pause_s = min(1.0, pause_s * 1.5)


def merged(parts: list[Receipt]) -> tuple[dict[str, TensorEntry], dict[str, dict[str, Any]]]:
    """Return the tensors of all ranks, and the trees of those ranks whose trees differ from the first one's.

    Shards of the same tensor become one entry, and replicas count once. What has the same name and place but other
    bytes (each rank's random numbers) is kept apart, under a name with the rank in it.
    """
    tensors: dict[str, TensorEntry] = {}
    trees: dict[str, dict[str, Any]] = {}
    for part in parts:
        own: dict[str, str] = {}
        for name, entry in part.tensors.items():
            before = tensors.get(name)
            if before is None:
                tensors[name] = entry
                continue
            have = {(one.offset, one.shape): one.b3 for one in before.slices}
            same = (before.dtype, before.shape) == (entry.dtype, entry.shape)
            if not same or any(have.get((one.offset, one.shape), one.b3) != one.b3 for one in entry.slices):
                own[name] = f"{name}~{part.rank}"
                while own[name] in tensors:
                    own[name] += "~"
                tensors[own[name]] = entry
                continue
            more = tuple(one for one in entry.slices if (one.offset, one.shape) not in have)
            tensors[name] = before.model_copy(update={"slices": (*before.slices, *more)})
        if part is not parts[0]:
            renamed = {name: _renamed(tree, own) for name, tree in part.trees.items()}
            differing = {name: tree for name, tree in renamed.items() if parts[0].trees.get(name) != tree}
            trees |= {str(part.rank): differing} if differing else {}
    return tensors, trees


def _renamed(tree: Any, names: dict[str, str]) -> Any:
    """Return a tree whose references to these tensors have other names."""
    if not names:
        return tree
    if isinstance(tree, list):
        return [_renamed(item, names) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("$ck") == "tensor":
        return {**tree, "name": names.get(tree["name"], tree["name"])}
    return {key: _renamed(item, names) for key, item in tree.items()}


def forget(store: ObjectStore, prefix: str, epoch: int, step: int, world: int) -> None:
    """Remove the receipts of a step that is committed."""
    for name in (PLAN, *range(1, world)):
        store.delete(_key(prefix, epoch, step, name))


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


def _key(prefix: str, epoch: int, step: int, name: str | int) -> str:
    return f"{prefix}/parts/{epoch:06d}-{step:012d}/{name if isinstance(name, str) else f'{name:06d}'}.json"


def _read(raw: bytes, rank: int) -> Receipt:
    try:
        fields = json.loads(raw)
        digest = fields.pop("b3")
        if digest != blake3(canonical_json(fields)).hexdigest():
            raise ValueError("its blake3 differs")
        return Receipt.model_validate(fields)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise PlatformError(f"The part of rank {rank} is damaged: {error}") from error
