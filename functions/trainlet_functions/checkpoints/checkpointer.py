"""The checkpointer of one attempt: what `ctx.checkpoint` is.

`step` is the one place where a training loop meets the platform: it saves when a save is due, and when the attempt must
end it saves and raises the signal that says why. Saving runs on the calling thread.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from trainlet.core.clocks import Clock, SystemClock, rfc3339
from trainlet.core.contexts import Emit, ShouldStop
from trainlet.core.errors import BudgetReached, Canceled, PlatformError, Preempted, StopTask, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import manifests, packs, states
from trainlet_functions.checkpoints.log import Commit, Log, State

KEEP_LAST = 3
BEST = "best"
MAX_FAILURES = 3
_SIGNALS: dict[str, type[StopTask]] = {"preempted": Preempted, "budget": BudgetReached}


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a restored checkpoint stands: the last finished step, and what was given along with it."""

    step: int
    epoch: int | None = None
    samples: int | None = None


class Checkpointer:
    """Saves and restores what was registered, under one prefix, as one epoch of writers."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int,
        *,
        policy: CheckpointPolicy | None = None,
        emit: Emit = lambda kind, fields: None,
        should_stop: ShouldStop = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._epoch = epoch
        self._policy = policy
        self._emit = emit
        self._should_stop = should_stop
        self._clock = clock or SystemClock()
        self._log = Log(store, prefix)
        self._acquired = False
        self._objects: dict[str, Any] = {}
        self._step = 0
        self._saved_step: int | None = None
        self._last_save_ns = self._clock.boot_ns()
        self._failures = 0
        self._protected: str | None = None
        self._sound: str | None = None  # the newest commit whose bytes this process read back or wrote

    def register(self, **objects: Any) -> None:
        """Name what belongs to a checkpoint. Raises UserError for what cannot be saved without pickle."""
        for name, value in objects.items():
            states.capture(name, value)
            self._objects[name] = value

    def restore(self) -> Progress | None:
        """Load the newest checkpoint that verifies into the registered objects; None when there is none.

        A damaged checkpoint is reported and the one before it is used. Raises UserError when what is registered does
        not fit what was saved, Fenced when a newer attempt is here.
        """
        state = self._acquire()
        for commit in reversed(state.commits):
            try:
                manifest = manifests.read(self._store, commit)
                tensors = {
                    name: states.from_bytes(entry.dtype, entry.shape, packs.read(self._store, name, entry))
                    for name, entry in manifest.tensors.items()
                }
            except (PlatformError, FileNotFoundError) as error:
                self._emit("warning", {"message": f"checkpoint of step {commit.step} cannot be used: {error}"})
                continue
            self._load(manifest, tensors)
            self._step = self._saved_step = commit.step
            self._protected = self._sound = commit.manifest
            self._last_save_ns = self._clock.boot_ns()
            self._emit("restored", {"step": commit.step})
            return Progress(commit.step, manifest.data.get("epoch"), manifest.data.get("samples"))
        return None

    def step(
        self,
        step: int | None = None,
        *,
        metrics: dict[str, float] | None = None,
        epoch: int | None = None,
        samples: int | None = None,
    ) -> None:
        """Note that a training step is finished (numbered from 1 when no number is given) and save when it is due.

        Due means: `every` has passed, the `on_improve` metric is better than ever, or the attempt must end; then it
        raises Preempted, Canceled or BudgetReached after the save. Raises Fenced when superseded, PlatformError when
        saving failed three times in a row.
        """
        self._step = self._step + 1 if step is None else int(step)
        values = {name: float(value) for name, value in (metrics or {}).items()}
        data = {"epoch": epoch, "samples": samples}
        code = self._should_stop()
        if code is not None:
            if self._objects and self._saved_step != self._step and (self._policy is None or self._policy.on_sigterm):
                self._try_save(code, values, data, last=True)
            raise _SIGNALS.get(code, Canceled)(f"stopped at step {self._step} ({code})")
        if self._objects and self._due():
            self._try_save("periodic", values, data)
        if self._objects and self._improved(values):
            if self._saved_step != self._step:
                self._try_save("best", values, data)
            if self._saved_step == self._step:
                self._tag_best()

    def save(self, step: int | None = None, *, metrics: dict[str, float] | None = None, reason: str = "manual") -> None:
        """Save now; raises PlatformError when it fails, Fenced when superseded."""
        if step is not None:
            self._step = int(step)
        self._save(reason, {name: float(value) for name, value in (metrics or {}).items()}, {})

    def wait(self) -> None:
        """Return when everything that was saved is committed."""

    # -- saving

    def _acquire(self) -> State:
        if not self._acquired:
            self._log.acquire(self._epoch)
            self._acquired = True
        return self._log.state

    def _due(self) -> bool:
        every = self._policy.every_s if self._policy is not None else None
        return every is not None and self._clock.boot_ns() - self._last_save_ns >= every * 1e9

    def _improved(self, values: dict[str, float]) -> bool:
        rule = self._policy.on_improve if self._policy is not None else None
        if rule is None:
            return False
        name, direction = rule
        if name not in values:
            known = ", ".join(values) or "none"
            raise UserError(
                f"checkpoint on_improve needs the metric {name!r} in ctx.checkpoint.step(metrics=...); got: {known}."
            )
        if not math.isfinite(values[name]):
            return False
        best = self._best_value(name)
        return best is None or (values[name] < best if direction == "min" else values[name] > best)

    def _best_value(self, name: str) -> float | None:
        state = self._acquire()
        tagged = state.tags.get(BEST)
        commit = next((one for one in state.commits if one.manifest == tagged), None)
        return None if commit is None else commit.metrics.get(name)

    def _try_save(
        self, reason: str, metrics: dict[str, float], data: dict[str, int | None], *, last: bool = False
    ) -> None:
        """Save; a failing store is reported and training goes on, until it failed too often or there is no later."""
        try:
            self._save(reason, metrics, data)
            self._failures = 0
        except (PlatformError, OSError) as error:
            self._failures += 1
            self._last_save_ns = self._clock.boot_ns()
            self._emit("warning", {"message": f"checkpoint of step {self._step} failed ({self._failures}): {error}"})
            if self._failures >= MAX_FAILURES and not last:
                raise PlatformError(
                    f"Saving a checkpoint failed {self._failures} times in a row; the last time: {error}"
                ) from error

    def _save(self, reason: str, metrics: dict[str, float], data: dict[str, int | None]) -> None:
        state = self._acquire()
        began = time.perf_counter()
        metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}  # JSON has no NaN
        manifest = self._write(state, reason, metrics, data)
        key, digest = manifests.write(self._store, self._prefix, manifest)
        commit = Commit(
            step=self._step,
            epoch=self._epoch,
            manifest=key,
            digest=digest,
            size_bytes=manifest.bytes_total,
            reason=reason,
            metrics=metrics,
            at=manifest.created,
            packs=tuple(sorted({part.pack for entry in manifest.tensors.values() for part in entry.slices})),
        )
        self._log.append("commit", self._epoch, lambda before: _with(before, commit))
        self._sound = key
        self._saved_step = self._step
        self._last_save_ns = self._clock.boot_ns()
        fields = {"step": self._step, "epoch": self._epoch, "reason": reason, "size_bytes": manifest.bytes_total}
        took = round(time.perf_counter() - began, 4)
        self._emit("checkpoint", {**fields, "committed_at": manifest.created, "metrics": metrics, "seconds": took})
        self._retain()

    def _write(
        self, state: State, reason: str, metrics: dict[str, float], data: dict[str, int | None]
    ) -> manifests.Manifest:
        """Write new tensors as a pack and return the manifest; tensors of the last commit are referred to again."""
        trees: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for name, value in self._objects.items():
            trees[name], found = states.capture(name, value)
            arrays |= found
        fresh = {name: states.raw_bytes(value) for name, value in arrays.items()}
        known = self._known_entries(state)
        entries: dict[str, packs.TensorEntry] = {}
        for name in list(fresh):
            dtype, shape, raw = fresh[name]
            before = known.get((dtype, shape, packs.digest_of(raw)))
            if before is not None:
                entries[name] = before
                del fresh[name]
        total = sum(raw.nbytes for _, _, raw in fresh.values())
        if fresh:
            entries |= packs.write(self._store, self._prefix, self._epoch, fresh)
        sizes = sum(end - begin for entry in entries.values() for begin, end in (part.range for part in entry.slices))
        newest = state.newest()
        return manifests.Manifest(
            task=self._prefix.removeprefix("runs/"),
            step=self._step,
            epoch=self._epoch,
            created=rfc3339(self._clock.wall_ns()),
            reason=reason,
            metrics=metrics,
            data=data,
            trees=trees,
            tensors=entries,
            parent=newest.manifest if newest else None,
            bytes_new=total,
            bytes_total=sizes,
        )

    def _known_entries(self, state: State) -> dict[tuple[str, tuple[int, ...], str], packs.TensorEntry]:
        """Return the tensors of the newest live commit by content: only live packs may be referred to.

        A commit that this process has neither written nor read back may be damaged, so nothing refers to it.
        """
        newest = state.newest()
        if newest is None or newest.manifest != self._sound:
            return {}
        try:
            manifest = manifests.read(self._store, newest)
        except (PlatformError, FileNotFoundError):
            return {}
        return {
            (entry.dtype, entry.shape, entry.slices[0].b3): entry
            for entry in manifest.tensors.values()
            if len(entry.slices) == 1
        }

    def _tag_best(self) -> None:
        """Point the tag `best` at the newest commit: no bytes are written but the record."""
        self._log.append("tag", self._epoch, _tagged)

    def _retain(self) -> None:
        """Forget old commits: the record first, the objects after. A crash in between leaves garbage, never a hole."""
        state = self._log.state
        keep = {commit.manifest for commit in state.commits[-KEEP_LAST:]} | set(state.tags.values())
        if self._protected is not None:
            keep.add(self._protected)
        gone = tuple(commit for commit in state.commits if commit.manifest not in keep)
        if not gone:
            return
        removed = tuple(commit.manifest for commit in gone)
        after = self._log.append("gc", self._epoch, lambda before: _without(before, removed), removed)
        live = {pack for commit in after.commits for pack in commit.packs}
        try:
            for commit in gone:
                self._store.delete(commit.manifest)
                for pack in commit.packs:
                    if pack not in live:
                        self._store.delete(pack)
        except (PlatformError, OSError) as error:
            self._emit("warning", {"message": f"old checkpoints could not be removed: {error}"})

    def _load(self, manifest: manifests.Manifest, tensors: dict[str, Any]) -> None:
        missing = [name for name in self._objects if name not in manifest.trees]
        if missing:
            have = ", ".join(manifest.trees)
            raise UserError(f"The checkpoint of step {manifest.step} has no {', '.join(missing)}; it has {have}.")
        for name, value in self._objects.items():
            states.load(name, value, manifest.trees[name], tensors)


def _with(state: State, commit: Commit) -> State:
    return state.model_copy(update={"commits": (*state.commits, commit)})


def _without(state: State, removed: tuple[str, ...]) -> State:
    return state.model_copy(update={"commits": tuple(c for c in state.commits if c.manifest not in removed)})


def _tagged(state: State) -> State:
    newest = state.newest()
    return state if newest is None else state.model_copy(update={"tags": {**state.tags, BEST: newest.manifest}})
