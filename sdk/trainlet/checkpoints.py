"""`tl.checkpoints`: what tasks have saved, from a notebook. Reads and writes the store itself, not through the API.

A task is named by its key, as `run.task("train").key` gives it. `store` is the URL of a store; without it, the one that
the training API uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainlet import options
from trainlet.core import specs
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore

if TYPE_CHECKING:
    from trainlet.core.wire import CheckpointLinks, CheckpointNote
    from trainlet_functions.checkpoints import Attributes as Attributes
    from trainlet_functions.checkpoints import RandomStates as RandomStates
    from trainlet_functions.checkpoints import Sampler as Sampler
    from trainlet_functions.checkpoints import Shard as Shard
    from trainlet_functions.checkpoints.listing import Difference
    from trainlet_functions.checkpoints.standalone import Standalone


def __getattr__(name: str) -> Any:
    if name in ("Attributes", "RandomStates", "Sampler", "Shard"):
        import trainlet_functions.checkpoints as room

        return getattr(room, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def checkpoint(
    name: str,
    *,
    store: str,
    every: options.Duration | None = None,
    on_improve: tuple[str, Literal["min", "max"]] | None = None,
    keep: specs.Keep | int | None = None,
) -> Standalone:
    """Return a checkpointer for a script or notebook without a step: `with tl.checkpoint("run", store="...") as ck:`.

    It is what `ctx.checkpoint` is inside of a step. `store` is a folder or `s3://bucket/prefix`.
    """
    from trainlet_functions.checkpoints import standalone

    _prefix(name)
    policy = options.Checkpoint(every=every, on_improve=on_improve, keep=keep)
    return standalone.start(name, store, policy)


def ls(task: str, *, store: str | None = None) -> Sequence[CheckpointNote]:
    """Return the committed checkpoints of a task, the newest first."""
    from trainlet_functions.checkpoints import listing

    return listing.list_checkpoints(_open(store), _prefix(task))


def tags(task: str, *, store: str | None = None) -> dict[str, int]:
    """Return the step that `best` and each pin point to."""
    from trainlet_functions.checkpoints import listing

    return listing.tags(_open(store), _prefix(task))


def verify(task: str, *, store: str | None = None) -> Sequence[str]:
    """Read every byte of every checkpoint; returns what is wrong, in words."""
    from trainlet_functions.checkpoints import listing

    return listing.verify(_open(store), _prefix(task))


def diff(task: str, before: int, after: int, *, store: str | None = None) -> Difference:
    """Say which tensors differ between the checkpoints of two steps."""
    from trainlet_functions.checkpoints import listing

    return listing.diff(_open(store), _prefix(task), before, after)


def export(
    task: str,
    path: str | Path,
    *,
    step: int | None = None,
    format: Literal["safetensors", "hf", "torch", "dcp"] = "safetensors",
    only: str | None = None,
    store: str | None = None,
) -> int:
    """Write a checkpoint (the newest, or that of `step`) for another tool; returns its step.

    `safetensors` is one file; `hf` a folder with the weights of one object (`only`, or `model`) under their own names;
    `torch` is what `torch.load(weights_only=True)` reads; `dcp` a folder of `torch.distributed.checkpoint`.
    """
    from trainlet_functions.checkpoints import formats

    if format not in ("safetensors", "hf", "torch", "dcp"):
        raise UserError(f"format={format!r} is none of safetensors, hf, torch, dcp.")
    return formats.export(_open(store), _prefix(task), Path(path), format, step, only)


def import_(task: str, path: str | Path, *, step: int = 0, store: str | None = None) -> Sequence[str]:
    """Make what another tool has saved the newest checkpoint of a task or name; returns the names to register.

    Takes a `.safetensors` file, a Hugging Face folder, a DCP folder, or a `torch.save` file, and runs no code from it.
    """
    from trainlet_functions.checkpoints import formats

    return tuple(formats.bring_in(_open(store), _prefix(task), Path(path), step))


def pin(task: str, step: int, *, store: str | None = None) -> None:
    """Keep the checkpoint of a step for good."""
    from trainlet_functions.checkpoints import listing

    listing.pin(_open(store), _prefix(task), step)


def unpin(task: str, step: int, *, store: str | None = None) -> None:
    """Let the retention decide about a step again."""
    from trainlet_functions.checkpoints import listing

    listing.unpin(_open(store), _prefix(task), step)


def rm(task: str, step: int, *, store: str | None = None) -> None:
    """Remove the checkpoint of a step; the newest and the pinned ones are refused."""
    from trainlet_functions.checkpoints import listing

    listing.remove(_open(store), _prefix(task), step)


def link(
    task: str, *, step: int | None = None, valid: options.Duration = "1h", store: str | None = None
) -> CheckpointLinks:
    """Return signed URLs that read a checkpoint (the newest, or that of `step`) without credentials, for at most 7 days.

    The training API signs them; with `store`, this process does. Only a bucket has links. They end earlier when the
    credentials that signed them do.
    """
    from trainlet.client import connect
    from trainlet.core import durations
    from trainlet.core.settings import Settings

    valid_s = durations.parse_duration_s(valid, "valid=")
    if store is None:
        prefix = _prefix(task)
        return connect(Settings.from_environment()).checkpoint_links(prefix.removeprefix("runs/"), step, int(valid_s))
    from trainlet_functions.checkpoints import viewing

    return viewing.links(_open(store), _prefix(task), step, valid_s)


def unlock(task: str, *, store: str | None = None) -> int:
    """Let another writer in after one that died without letting go; returns how many claims there were.

    There are claims only in a store that ignores the condition of a PUT. A writer that is alive after all is shut out.
    """
    from trainlet_functions.checkpoints import listing

    return listing.unlock(_open(store), _prefix(task))


def _prefix(task: str) -> str:
    if not isinstance(task, str) or not task.strip("/"):
        raise UserError(f'{task!r} is no key of a task. run.task("train").key gives one.')
    return f"runs/{task}"


def _open(store: str | None) -> ObjectStore:
    from trainlet.client import connect
    from trainlet.client.stores import open_store
    from trainlet.core.settings import Settings

    return open_store(store or connect(Settings.from_environment()).get_info().store_url)
