"""The saver: the one writer of a task's checkpoints in one attempt. It turns staged snapshots into commits.

Pack, manifest, log record, in this order: a crash in between leaves objects that nobody refers to. It runs in a process
of its own beside a worker's child, or on the calling thread where there is no such process; it never sees live objects.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable

from trainlet.core.clocks import Clock, SystemClock, rfc3339
from trainlet.core.contexts import Emit
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import layouts, manifests, packs, receipts, retention
from trainlet_functions.checkpoints.log import Commit, Log, State
from trainlet_functions.checkpoints.receipts import Ranks
from trainlet_functions.checkpoints.stages import Snapshot

MAX_ORPHANS = 5000
PLAN_S = 10.0  # how long a rank waits to hear what the first one writes
SMALL = 1 << 20  # what is written without asking
ALONE = (
    "{url} ignores the condition of a PUT: only one writer at a time may save there, ranks cannot, and two attempts are kept "
    "apart by their epochs alone. Use another store, or look at it again after an update: trainlet doctor --store {url}"
)
_EPOCH = re.compile(r"-(\d+)-[0-9a-f]{12}\.(?:json|safetensors)")


class GivenUp(PlatformError):
    """Raised when a snapshot was overwritten, or a better one came, before it was committed."""


class NotYet(PlatformError):
    """Raised while rank 0 has not taken over the log."""


class _Stale(Exception):
    """A pack that was to be referred to is not live any more."""


class Saver:
    """Commits snapshots under one prefix as one epoch. Not safe for several threads at once."""

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int | None,
        *,
        policy: CheckpointPolicy | None = None,
        ranks: Ranks | None = None,
        emit: Emit = lambda kind, fields: None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._wanted = epoch
        self._policy = policy or CheckpointPolicy()
        self._ranks = ranks or Ranks()
        self._emit = emit
        self._clock = clock or SystemClock()
        self._log = Log(store, prefix)
        self._epoch: int | None = None
        self._known: packs.Known = {}
        self._protected: frozenset[str] = frozenset()
        self._swept = False
        self.bytes_per_s = 0.0
        self.upload_s = 0.0

    @property
    def state(self) -> State:
        """Return what the log said when it was last read or written."""
        return self._log.state

    @property
    def epoch(self) -> int:
        """Return the epoch that was acquired."""
        assert self._epoch is not None
        return self._epoch

    def acquire(self) -> State:
        """Take over the log, once; raises Fenced when a newer epoch is there.

        Only rank 0 writes the log. Another rank reads it anew, and raises NotYet as long as rank 0 has not taken over: an
        older attempt might still commit something that rank 0 would see and this rank would not.
        """
        if self._epoch is None and self._ranks.world > 1:
            self._refuse_ranks()
        if self._ranks.rank == 0:
            if self._epoch is None:
                self._epoch = self._log.acquire(self._wanted)
                if self._log.alone:
                    self._emit("warning", {"message": ALONE.format(url=self._store.url)})
        else:
            assert self._wanted is not None
            receipts.check_epoch(self._log.refresh(), self._wanted, self._prefix)
            if self._log.state.epoch < self._wanted:
                raise NotYet(
                    f"Rank 0 has not taken over the checkpoints, so rank {self._ranks.rank} cannot: register on rank 0 too."
                )
            self._epoch = self._wanted
        return self._log.state

    def close(self) -> None:
        """Write nothing more, and let another writer in where there may be only one."""
        self._log.release()

    def _refuse_ranks(self) -> None:
        seen = self._log.broken
        if seen:
            raise UserError(
                f"{self._ranks.world} ranks cannot save into {self._store.url}: {seen}, so it may have one writer only. "
                "Use another store, or save on rank 0 alone."
            )

    def resumed(self, key: str) -> None:
        """Note the checkpoint that training went on from: it stays, and its verified bytes may be referred to."""
        commit = next((one for one in self._log.state.commits if one.manifest == key), None)
        if commit is not None:
            self._protected = frozenset({key})
            with contextlib.suppress(PlatformError, FileNotFoundError):  # removed meanwhile: then all is written anew
                self._known = packs.known_of(manifests.read(self._store, self._prefix, commit).tensors)

    def commit(
        self, snapshot: Snapshot, data: memoryview, reason: str, *, goes_on: Callable[[], None] = lambda: None
    ) -> Commit | None:
        """Commit a snapshot and return its commit; one that this attempt has committed is only tagged.

        `goes_on` raises GivenUp when the snapshot must not be used any more. Returns None for a rank other than 0,
        which delivers its part. Raises Fenced when superseded, PlatformError when the store fails.
        """
        state = self.acquire()
        done = next((one for one in state.commits if (one.step, one.epoch) == (snapshot.step, self.epoch)), None)
        if done is None:
            began = time.perf_counter()
            try:
                done = self._write(snapshot, data, reason, began, goes_on, self._known)
            except _Stale:
                done = self._again(snapshot, data, reason, began, goes_on)
        elif self._ranks.rank == 0 and self._improves(done):
            self._log.append("tag", self.epoch, lambda before: _tagged(before, done))
        if done is not None and self._ranks.rank == 0:
            self._clean()
        return done

    # -- writing

    def _write(
        self,
        snapshot: Snapshot,
        data: memoryview,
        reason: str,
        began: float,
        goes_on: Callable[[], None],
        known: packs.Known,
    ) -> Commit | None:
        layout = layouts.of(snapshot.tensors)
        live = self._log.state.live_packs()
        usable = {what: part for what, part in known.items() if part.pack in live}

        def part_of(written: packs.Written) -> receipts.Receipt:
            return receipts.Receipt(
                rank=self._ranks.rank,
                trees=snapshot.trees,
                tensors=_entries(written, snapshot.tensors),
                bytes_new=written.bytes_new,
                reused=tuple(sorted({one.pack for _, one in written.slices if one.pack in live})),
            )

        where = self._store, self._prefix, self.epoch
        leads = self._ranks.world > 1 and self._ranks.rank == 0
        replicas = sum(one.size_bytes for one in snapshot.tensors if one.whole is None) > SMALL

        def tell(plan: packs.Written) -> None:
            if leads:
                receipts.deliver(*where, snapshot.step, part_of(plan), receipts.PLAN)

        written = packs.write(
            *where,
            layout,
            data,
            usable,
            goes_on=goes_on,
            elsewhere=(lambda: receipts.planned(*where, snapshot.step, goes_on, PLAN_S))
            if self._ranks.rank > 0 and replicas
            else None,
            planned=tell,
        )
        part = part_of(written)
        self._measure(written.bytes_new, time.perf_counter() - began)
        goes_on()
        if self._ranks.rank != 0:
            receipts.deliver(*where, snapshot.step, part)
            self._known = packs.known_of(part.tensors)
            return None
        if not leads:
            return self._publish(snapshot, reason, [part], began)
        parts = [part, *receipts.collect(*where, snapshot.step, self._ranks, goes_on)]
        commit = self._publish(snapshot, reason, parts, began)
        with contextlib.suppress(PlatformError, OSError):  # the next attempt removes what stays
            receipts.forget(*where, snapshot.step, self._ranks.world)
        return commit

    def _again(
        self, snapshot: Snapshot, data: memoryview, reason: str, began: float, goes_on: Callable[[], None]
    ) -> Commit | None:
        """Write everything anew: somebody removed the checkpoint whose bytes were to be referred to."""
        if self._ranks.world > 1:
            raise PlatformError(f"Step {snapshot.step} refers to a checkpoint that was removed meanwhile.")
        return self._write(snapshot, data, reason, began, goes_on, {})

    def _publish(self, snapshot: Snapshot, reason: str, parts: list[receipts.Receipt], began: float) -> Commit:
        newest = self._log.state.newest()
        metrics = snapshot.metrics
        tensors, ranks = receipts.merged(parts)
        for name, entry in tensors.items():
            packs.check(name, entry, self._prefix)
        manifest = manifests.Manifest(
            task=self._prefix.removeprefix("runs/"),
            step=snapshot.step,
            epoch=self.epoch,
            created=rfc3339(self._clock.wall_ns()),
            reason=reason,
            world=self._ranks.world,
            metrics=metrics,
            data=snapshot.data,
            trees=parts[0].trees,
            ranks=ranks,
            tensors=tensors,
            parent=newest.manifest if newest else None,
            bytes_new=sum(part.bytes_new for part in parts),
            bytes_total=sum(one.size_bytes for entry in tensors.values() for one in entry.slices),
        )
        key, digest = manifests.write(self._store, self._prefix, manifest)
        commit = Commit(
            step=snapshot.step,
            epoch=self.epoch,
            manifest=key,
            digest=digest,
            size_bytes=manifest.bytes_total,
            reason=reason,
            metrics=metrics,
            at=manifest.created,
            packs=manifest.packs,
        )
        reused = {pack for part in parts for pack in part.reused}

        def change(before: State) -> State:
            if not reused <= before.live_packs():
                raise _Stale
            after = before.model_copy(update={"commits": (*before.commits, commit)})
            return _tagged(after, commit) if self._improves(commit, before) else after

        state = self._log.append("commit", self.epoch, change)
        self._known = packs.known_of(tensors)
        fields = {"step": commit.step, "epoch": commit.epoch, "reason": reason, "size_bytes": commit.size_bytes}
        took = round(time.perf_counter() - began, 4)
        best = state.tags.get(retention.BEST) == commit.manifest
        self._emit(
            "checkpoint", {**fields, "committed_at": commit.at, "metrics": metrics, "best": best, "seconds": took}
        )
        return commit

    def _improves(self, commit: Commit, state: State | None = None) -> bool:
        rule = self._policy.on_improve
        if rule is None or rule[0] not in commit.metrics:
            return False
        best = best_value(state or self._log.state, rule[0])
        value = commit.metrics[rule[0]]
        return best is None or (value < best if rule[1] == "min" else value > best)

    def _measure(self, size_bytes: int, seconds: float) -> None:
        self.upload_s = seconds
        if size_bytes >= 1 << 20 and seconds > 0:
            rate = size_bytes / seconds
            self.bytes_per_s = rate if not self.bytes_per_s else 0.5 * (self.bytes_per_s + rate)

    # -- removing

    def _clean(self) -> None:
        """Forget old commits and what dead attempts left: the record first, the objects after.

        A crash in between leaves garbage, never a hole, and the next attempt finds it.
        """
        state = self._log.state
        gone = retention.superfluous(state, self._policy.keep, self._policy.on_improve, self._protected)
        try:
            orphans = () if self._swept else self._orphans(state)
            if not gone and not orphans:
                self._swept = True
                return
            names = frozenset(one.manifest for one in gone)
            objects = [*names, *(pack for one in gone for pack in one.packs), *orphans]
            after = self._log.append(
                "gc", self.epoch, lambda before: retention.without(before, names), tuple(sorted(names | set(orphans)))
            )
            remove(self._store, after, objects)
            self._swept = True
        except (PlatformError, OSError) as error:
            self._emit("warning", {"message": f"old checkpoints could not be removed: {error}"})

    def _orphans(self, state: State) -> tuple[str, ...]:
        """Return objects of older epochs that no live commit needs. Those of this epoch may still become live."""
        live = state.live_packs() | {one.manifest for one in state.commits}
        found: list[str] = []
        for folder in ("packs", "manifests", "parts"):
            for item in self._store.list(f"{self._prefix}/{folder}/"):
                epoch = receipts.epoch_of(item.key, self._prefix) if folder == "parts" else _epoch_of(item.key)
                if item.key not in live and epoch is not None and epoch < self.epoch:
                    found.append(item.key)
                if len(found) >= MAX_ORPHANS:
                    return tuple(found)
        return tuple(found)


def remove(store: ObjectStore, state: State, objects: list[str]) -> None:
    """Delete objects, but for those that the state needs: it is what the log says after their `gc` record."""
    live = state.live_packs() | {one.manifest for one in state.commits}
    for key in dict.fromkeys(objects):
        if key not in live:
            store.delete(key)


def best_value(state: State, metric: str) -> float | None:
    """Return the metric of the commit that is tagged as the best."""
    tagged = state.tags.get(retention.BEST)
    commit = next((one for one in state.commits if one.manifest == tagged), None)
    return None if commit is None else commit.metrics.get(metric)


def _tagged(state: State, commit: Commit) -> State:
    return state.model_copy(update={"tags": {**state.tags, retention.BEST: commit.manifest}})


def _epoch_of(key: str) -> int | None:
    found = _EPOCH.search(key)
    return int(found[1]) if found else None


def _entries(written: packs.Written, tensors: tuple[layouts.Tensor, ...]) -> dict[str, packs.TensorEntry]:
    slices: dict[str, list[packs.Slice]] = {one.name: [] for one in tensors}
    for piece, part in written.slices:
        slices[piece.tensor.name].append(part)
    return {
        one.name: packs.TensorEntry(
            dtype=one.dtype,
            shape=one.shape if one.whole is None else one.whole,
            slices=tuple(sorted(slices[one.name], key=lambda part: part.offset)),
        )
        for one in tensors
    }
