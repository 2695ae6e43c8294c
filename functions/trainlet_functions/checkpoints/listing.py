"""A task's checkpoints from outside: what is there, whether it is whole, what differs; pins, removals, copies.

A person who pins or removes appends to the log in the name of whoever owns it, so a running attempt sees it as if it had
been written before its own next record. Removals name in the log what goes, and delete afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trainlet.core.errors import NotFoundError, PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.wire import CheckpointNote
from trainlet_functions.checkpoints import claims, layouts, manifests, packs, retention, savers
from trainlet_functions.checkpoints.log import Commit, Log, State


@dataclass(frozen=True, slots=True)
class Difference:
    """How two checkpoints differ, by tensors; `same` share their bytes."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]


def list_checkpoints(store: ObjectStore, prefix: str) -> list[CheckpointNote]:
    """Return the live checkpoints under a prefix, the newest first."""
    return [
        CheckpointNote(
            step=commit.step,
            epoch=commit.epoch,
            reason=commit.reason,
            size_bytes=commit.size_bytes,
            committed_at=commit.at,
            metrics=commit.metrics,
        )
        for commit in reversed(Log(store, prefix).refresh().commits)
    ]


def tags(store: ObjectStore, prefix: str) -> dict[str, int]:
    """Return the step that each tag points to: `best`, and `pin.<step>`."""
    state = Log(store, prefix).refresh()
    steps = {commit.manifest: commit.step for commit in state.commits}
    return {tag: steps[key] for tag, key in state.tags.items() if key in steps}


def verify(store: ObjectStore, prefix: str) -> list[str]:
    """Read every byte of every live checkpoint; returns what is wrong, in words. What is removed meanwhile is not wrong."""
    problems: dict[str, str] = {}
    log = Log(store, prefix)
    for commit in log.refresh().commits:
        try:
            manifest = manifests.read(store, prefix, commit)
            parts = [part for entry in manifest.tensors.values() for part in entry.slices]
            for _ in packs.fetch(store, parts):
                continue
        except (PlatformError, UserError, FileNotFoundError) as error:
            problems[commit.manifest] = f"step {commit.step}: {error}"
    live = {commit.manifest for commit in log.refresh().commits} if problems else set()
    return [words for manifest, words in problems.items() if manifest in live]


def diff(store: ObjectStore, prefix: str, before: int, after: int) -> Difference:
    """Compare the checkpoints of two steps without reading their bytes: equal hashes are equal tensors."""
    state = Log(store, prefix).refresh()
    old, new = (
        {
            name: (entry.dtype, entry.shape, sorted((one.offset, one.b3) for one in entry.slices))
            for name, entry in manifests.read(store, prefix, find(state, prefix, step)).tensors.items()
        }
        for step in (before, after)
    )
    both = sorted(old.keys() & new.keys())
    return Difference(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(name for name in both if old[name] != new[name]),
        same=tuple(name for name in both if old[name] == new[name]),
    )


def pin(store: ObjectStore, prefix: str, step: int) -> None:
    """Keep the checkpoint of a step whatever the retention says."""

    def change(before: State) -> State:
        commit = find(before, prefix, step)
        return before.model_copy(update={"tags": {**before.tags, f"{retention.PIN}{step}": commit.manifest}})

    Log(store, prefix).amend("tag", change)


def unpin(store: ObjectStore, prefix: str, step: int) -> None:
    """Let the retention decide again; a step that is not pinned is no error."""

    def change(before: State) -> State:
        kept = {tag: key for tag, key in before.tags.items() if tag != f"{retention.PIN}{step}"}
        return before.model_copy(update={"tags": kept})

    Log(store, prefix).amend("tag", change)


def remove(store: ObjectStore, prefix: str, step: int) -> None:
    """Remove the checkpoint of a step. Raises UserError for one that is pinned, or the newest: a run goes on from it."""
    log = Log(store, prefix)
    gone: list[Commit] = []

    def change(before: State) -> State:
        commit = find(before, prefix, step)
        if before.tags.get(f"{retention.PIN}{step}") == commit.manifest:
            raise UserError(f"Step {step} of {prefix} is pinned. Unpin it first.")
        if commit == before.newest():
            raise UserError(
                f"Step {step} is the newest checkpoint of {prefix}; the task would go on from an older one."
            )
        gone[:] = [commit]
        return retention.without(before, frozenset({commit.manifest}))

    state = log.amend("gc", change, (find(log.refresh(), prefix, step).manifest,))
    savers.remove(store, state, [gone[0].manifest, *gone[0].packs])


def chosen(state: State, prefix: str, step: int | None) -> Commit:
    """Return the commit of a step, of the newest when None is given; raises NotFoundError."""
    commit = state.newest() if step is None else find(state, prefix, step)
    if commit is None:
        raise NotFoundError(f"There is no checkpoint under {prefix}.")
    return commit


def export(store: ObjectStore, prefix: str, path: Path, step: int | None = None) -> int:
    """Write a checkpoint's tensors as one verified `.safetensors` file; returns the step. The newest when None is given.

    What is no tensor goes into the file's metadata as JSON, under the name of each registered object.
    """
    state = Log(store, prefix).refresh()
    commit = chosen(state, prefix, step)
    manifest = manifests.read(store, prefix, commit)
    header: dict[str, object] = {
        "__metadata__": {
            "trainlet.step": str(commit.step),
            **{f"trainlet.tree.{name}": json.dumps(tree) for name, tree in manifest.trees.items()},
        }
    }
    position = 0
    ordered: list[packs.Slice] = []
    for name, entry in manifest.tensors.items():
        parts = sorted(entry.slices, key=lambda part: part.offset)
        if any(part.shape[1:] != entry.shape[1:] for part in parts):
            raise UserError(f"{name!r} was saved by ranks that each hold columns of it; restore it instead.")
        size = sum(part.size_bytes for part in parts)
        header[name] = {
            "dtype": layouts.DTYPES[entry.dtype][0],
            "shape": list(entry.shape),
            "data_offsets": [position, position + size],
        }
        position += size
        ordered += parts
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(len(raw).to_bytes(8, "little") + raw)
            for _, data in packs.fetch(store, ordered):
                file.write(data)
        temporary.replace(path)
    except FileNotFoundError as error:
        raise PlatformError(f"{error} is missing; `verify` shows which checkpoints are whole.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return commit.step


def find(state: State, prefix: str, step: int) -> Commit:
    """Return the newest commit of a step; raises NotFoundError naming the steps that there are."""
    for commit in reversed(state.commits):
        if commit.step == step:
            return commit
    have = ", ".join(str(commit.step) for commit in state.commits) or "none"
    raise NotFoundError(f"There is no checkpoint of step {step} under {prefix}; there are: {have}.")


def fence(store: ObjectStore, prefix: str, epoch: int) -> None:
    """Take over as `epoch`: no older writer can commit after this returns."""
    Log(store, prefix).acquire(epoch)


def unlock(store: ObjectStore, prefix: str) -> int:
    """Let go of the claims of dead writers in a store that ignores conditions; returns how many there were."""
    return claims.clear(store, prefix)
