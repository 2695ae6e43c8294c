"""Reading a task's checkpoints from outside: what is there, whether it is whole, and shutting an old writer out."""

from __future__ import annotations

from trainlet.core.errors import PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.wire import CheckpointNote
from trainlet_functions.checkpoints import manifests, packs
from trainlet_functions.checkpoints.log import Log


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


def verify(store: ObjectStore, prefix: str) -> list[str]:
    """Read every byte of every live checkpoint; returns what is wrong, in words."""
    problems: list[str] = []
    for commit in Log(store, prefix).refresh().commits:
        try:
            manifest = manifests.read(store, prefix, commit)
            parts = [part for entry in manifest.tensors.values() for part in entry.slices]
            for _ in packs.fetch(store, parts):
                continue
        except (PlatformError, UserError, FileNotFoundError) as error:
            problems.append(f"step {commit.step}: {error}")
    return problems


def fence(store: ObjectStore, prefix: str, epoch: int) -> None:
    """Take over as `epoch`: no older writer can commit after this returns."""
    Log(store, prefix).acquire(epoch)
