"""From a committed checkpoint back into live objects: the newest one that verifies, read by just the slices that are needed.

Nothing live is touched before every byte that is needed is there and has its hash, and before every shape fits. Arrays
that exist already are filled in place; a rank that holds a shard reads the slices that meet it, however many ranks wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainlet.core.contexts import Emit
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import arrays, boards, manifests, packs, receipts, retention, rounds, states
from trainlet_functions.checkpoints.log import Commit, Log, State
from trainlet_functions.checkpoints.manifests import Manifest

Region = tuple[tuple[int, ...], tuple[int, ...]]  # offset, shape


@dataclass(frozen=True, slots=True)
class Found:
    """What was restored."""

    commit: Commit
    manifest: Manifest


def restore(
    store: ObjectStore,
    prefix: str,
    state: State,
    objects: dict[str, Any],
    *,
    rank: int = 0,
    strict: bool = True,
    verify: bool = True,
    at_step: int | None = None,
    choice: int | None = None,
    writes: bool = False,
    emit: Emit = lambda kind, fields: None,
) -> Found | None:
    """Load the newest checkpoint that verifies (of `at_step`, when given) into the objects; None when there is none.

    A damaged one is reported and the one before it is used. Raises UserError when what is registered does not fit.
    `choice` is what the first of several ranks has restored (`rounds.matches`): that one or none. When this rank's part of
    it is damaged, the log says so from then on, for the next attempt, and this one ends with PlatformError. One that
    `writes`, and cannot read because a newer attempt has removed it, raises Fenced.
    """
    damaged = {key for tag, key in state.tags.items() if tag.startswith(retention.DAMAGED)}
    for commit in reversed(state.commits):
        if at_step is not None and commit.step != at_step:
            continue
        if (choice is None and commit.manifest in damaged) or (
            choice is not None and not rounds.matches(commit, choice)
        ):
            continue
        try:
            manifest = manifests.read(store, prefix, commit)
            loader = _Loader(manifest, objects, rank, strict)
            loader.fetch(store, verify=verify)
        except (PlatformError, FileNotFoundError) as error:
            if writes:
                receipts.check_epoch(Log(store, prefix).refresh(), state.epoch, prefix)
            words = str(error) if isinstance(error, PlatformError) else f"{error} is missing"
            emit("warning", {"message": f"checkpoint of step {commit.step} cannot be used: {words}"})
            if choice is not None:
                _mark(store, prefix, commit)
                raise PlatformError(
                    f"Rank {rank} cannot read its part of the checkpoint of step {commit.step}: {words} The next attempt uses "
                    "an older one."
                ) from error
            continue
        loader.load()
        return Found(commit, manifest)
    if choice not in (None, boards.NONE):
        raise PlatformError(
            f"Rank {rank} does not find the checkpoint that rank 0 has restored; it was removed meanwhile."
        )
    return None


def _mark(store: ObjectStore, prefix: str, commit: Commit) -> None:
    """Have the log say that a checkpoint is damaged, so that no rank restores it."""

    def change(before: State) -> State:
        tags = {**before.tags, f"{retention.DAMAGED}{commit.step}": commit.manifest}
        return before.model_copy(update={"tags": tags})

    Log(store, prefix).amend("tag", change)


class _Loader:
    """Loads one checkpoint: first compares, then fetches, then fills."""

    def __init__(self, manifest: Manifest, objects: dict[str, Any], rank: int, strict: bool) -> None:
        self._manifest = manifest
        self._strict = strict
        self._trees = {**manifest.trees, **manifest.ranks.get(str(rank), {})}
        self._objects = objects
        self._live = {name: states.capture(name, value)[1] for name, value in objects.items()}
        self._made: dict[str, Any] = {}  # arrays that only a checkpoint brings, where they are distributed
        self._kinds: dict[str, str] = {}
        self._skipped: set[str] = set()
        self._parts: dict[str, list[packs.Slice]] = {}
        self._bytes: dict[tuple[str, tuple[int, int]], memoryview] = {}
        self._compare()

    def _compare(self) -> None:
        missing = [name for name in self._objects if name not in self._trees]
        if missing and self._strict:
            have = ", ".join(self._trees) or "nothing"
            raise UserError(
                f"The checkpoint of step {self._manifest.step} has no {', '.join(missing)}; it has {have}. "
                "Register what you saved, or restore(strict=False)."
            )
        misfits: list[str] = []
        for name, value in self._objects.items():
            likeness = states.models(name, value)
            for reference, kind in states.references(self._trees.get(name)):
                entry = self._manifest.tensors.get(reference)
                if entry is None:
                    raise PlatformError(f"The manifest of step {self._manifest.step} has no bytes for {reference!r}.")
                self._kinds[reference] = kind
                live = self._live[name].get(reference)
                if live is None and (model := likeness(reference)) is not None and tuple(model.shape) == entry.shape:
                    live = self._made[reference] = arrays.new_like(model, entry.dtype)
                there = None if live is None else (arrays.dtype_of(live), arrays.whole_shape(live))
                if there is not None and there != (entry.dtype, entry.shape):
                    misfits.append(
                        f"{reference} has shape {there[1]} of {there[0]}, the checkpoint has {entry.shape} of {entry.dtype}"
                    )
                    self._skipped.add(reference)
                else:
                    region = _region(live, entry)
                    self._parts[reference] = [part for part in entry.slices if _common(_box(part), region)]
        if misfits and self._strict:
            more = f"; and {len(misfits) - 5} more" if len(misfits) > 5 else ""
            raise UserError(
                f"The checkpoint of step {self._manifest.step} does not fit: {'; '.join(misfits[:5])}{more}. "
                "Register what you saved, or restore(strict=False) to leave these as they are."
            )

    def fetch(self, store: ObjectStore, *, verify: bool) -> None:
        """Read the bytes that are needed; raises PlatformError or FileNotFoundError when they are not as committed."""
        wanted = {(part.pack, part.range): part for parts in self._parts.values() for part in parts}
        for part, data in packs.fetch(store, list(wanted.values()), verify=verify):
            self._bytes[part.pack, part.range] = data

    def load(self) -> None:
        """Fill the objects."""
        for name, value in self._objects.items():
            if name in self._trees:
                states.load(name, value, self._trees[name], self._fill, strict=self._strict)

    def _fill(self, name: str, live: Any) -> Any:
        if name in self._skipped:
            return live
        entry = self._manifest.tensors[name]
        live = self._made.get(name, live)
        target = live if live is not None else arrays.new(entry.dtype, entry.shape, self._kinds[name])
        origin, shape = _region(target, entry)
        memory = arrays.local_of(target)
        for part in self._parts[name]:
            box = _box(part)
            common = _common(box, (origin, shape))
            if common is None:
                continue
            source = arrays.view(self._bytes[part.pack, part.range], entry.dtype, part.shape)
            arrays.copy(_cut(source, common, box[0]), _cut(memory, common, origin))
        return target


def _region(live: Any, entry: packs.TensorEntry) -> Region:
    """Return the block of the whole tensor that is wanted."""
    if live is None:
        return (0,) * len(entry.shape), entry.shape
    offset, _ = arrays.place_of(live)
    return offset or (0,) * len(entry.shape), tuple(arrays.local_of(live).shape)


def _box(part: packs.Slice) -> Region:
    return part.offset or (0,) * len(part.shape), part.shape


def _common(one: Region, other: Region) -> Region | None:
    """Return what two blocks share, or None."""
    begin = tuple(max(a, b) for a, b in zip(one[0], other[0], strict=True))
    ends = (min(a + n, b + m) for (a, n), (b, m) in zip(zip(*one, strict=True), zip(*other, strict=True), strict=True))
    shape = tuple(end - first for first, end in zip(begin, ends, strict=True))
    return (begin, shape) if all(size > 0 for size in shape) else None


def _cut(array: Any, block: Region, origin: tuple[int, ...]) -> Any:
    if not block[1]:
        return array[...]
    return array[tuple(slice(a - o, a - o + n) for a, n, o in zip(*block, origin, strict=True))]
