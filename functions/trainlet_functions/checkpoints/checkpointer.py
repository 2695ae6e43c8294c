"""The checkpointer of one attempt: what `ctx.checkpoint` is.

`step` is the one place where a training loop meets the platform: it copies the state when that is due, and when the
attempt must end it saves and raises the signal that says why. It only ever copies; a saver does the rest (`links`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.contexts import Emit, ShouldStop
from trainlet.core.errors import BudgetReached, Canceled, PlatformError, Preempted, StopTask, UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import boards, intervals, restoring, rounds, savers, stages, states
from trainlet_functions.checkpoints.links import Inline, Line, Outcome
from trainlet_functions.checkpoints.stagers import STOP, Stager
from trainlet_functions.checkpoints.stages import Buffer

MAX_FAILURES = 3
LAST_WAIT_S = 3600.0
_SIGNALS: dict[str, type[StopTask]] = {"preempted": Preempted, "budget": BudgetReached}


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a restored checkpoint stands: the last finished step, and what was given along with it."""

    step: int
    epoch: int | None = None
    samples: int | None = None


class Checkpointer:
    """Saves and restores what was registered, under one prefix, as one epoch of writers.

    Without a `link` to a saver of its own it commits on the calling thread. `grace_s` is how long a stop leaves. With a
    `board`, this is one of several ranks that save one checkpoint together.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int | None,
        *,
        policy: CheckpointPolicy | None = None,
        emit: Emit = lambda kind, fields: None,
        should_stop: ShouldStop = lambda: None,
        clock: Clock | None = None,
        link: Line | None = None,
        buffers: list[Buffer] | None = None,
        rank: int = 0,
        board: boards.Board | None = None,
        grace_s: float | None = None,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._policy = policy or CheckpointPolicy()
        self._emit = emit
        self._should_stop = should_stop
        self._clock = clock or SystemClock()
        self._rank = rank
        self._grace_s = grace_s
        self._on_first = on_first
        if link is None:
            buffers = [Buffer(stages.anonymous_file())]
            saver = savers.Saver(store, prefix, epoch, policy=policy, emit=emit, clock=self._clock)
            self._link: Inline | Line = Inline(saver, buffers[0])
        else:
            self._link = link
        self._background = link is not None
        self._rounds: rounds.Rounds | None = None
        if board is not None:
            self._rounds = rounds.Rounds(board, rank, judged=self._policy.on_improve is not None, emit=emit)
        self._stager = Stager(buffers or [], *([self._rounds.staging] if self._rounds else []))
        self._objects: dict[str, Any] = {}
        self._step = 0
        self._staged_step: int | None = None
        self._ordered_step: int | None = None  # the newest step that is, or will be, committed
        self._best: float | None = None
        self._best_known = False
        self._last_order_ns = self._last_stage_ns = self._clock.boot_ns()
        self._newest_order = 0
        self._failures = 0
        self._upload_s = 0.0
        self._warned = False
        self._rolling = False  # one upload after the other

    def register(self, **objects: Any) -> Self:
        """Name what belongs to a checkpoint and return this checkpointer, for `register(...).restore()`.

        Raises UserError for what cannot be saved without pickle.
        """
        for name, value in objects.items():
            states.capture(name, value)
        if not self._objects:
            if self._rounds is not None:
                self._rounds.join()
            self._on_first()
        self._objects |= objects
        return self

    def restore(self, *, strict: bool = True, verify: bool = True, at_step: int | None = None) -> Progress | None:
        """Load the newest checkpoint that verifies into the registered objects; None when there is none.

        A damaged checkpoint is reported and the one before it is used. `strict=False` leaves what does not fit as it is;
        `at_step` takes the checkpoint of that step. Raises UserError when what is registered does not fit what was
        saved, Fenced when a newer attempt is here.
        """
        self._abstain()
        follows = self._rounds is not None and not self._rounds.leads
        choice = self._rounds.choice() if self._rounds is not None and follows else None
        state = self._link.acquire(fresh=True)
        found = restoring.restore(
            self._store,
            self._prefix,
            state,
            self._objects,
            rank=self._rank,
            strict=strict,
            verify=verify,
            at_step=at_step,
            choice=choice,
            writes=True,
            emit=self._emit,
        )
        if self._rounds is not None and not follows:
            self._rounds.chosen(found.commit if found else None)
        if self._background and self._objects:
            self._stager.prepare(self._objects)
        self._last_order_ns = self._clock.boot_ns()
        if found is None:
            return None
        commit, manifest = found.commit, found.manifest
        self._link.resumed(commit.manifest)
        self._step = self._ordered_step = commit.step
        self._emit("restored", {"step": commit.step})
        return Progress(commit.step, manifest.data.get("epoch"), manifest.data.get("samples"))

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
        self._abstain()
        if self._rounds is not None:
            self._rounds.arrive(self._step)
        self._take(self._link.outcomes())
        code = self._should_stop()
        if self._rounds is not None:
            code = self._rounds.stops(self._step, code)
        if code is not None:
            if self._objects and self._ordered_step != self._step and self._policy.on_sigterm:
                self._save_last(code, values, data)
                if self._rounds is not None and self._rounds.stops(self._step, None) is None:
                    return  # a rank had passed this step in the same moment: all stop at the next one
            try:
                self._finish_orders()
            except PlatformError as error:  # the saver ran out of time: that is no failure of the step
                self._emit("warning", {"message": f"checkpoint of step {self._step} failed: {error}"})
            raise _SIGNALS.get(code, Canceled)(f"stopped at step {self._step} ({code})")
        if self._rounds is not None:
            self._step_together(self._rounds, values, data)
            return
        if not self._objects:
            return
        improved = self._improved(values)
        if improved or self._seconds_since(self._last_order_ns) >= self._every_s():
            self._order("best" if improved else "periodic", values, data)
            if improved and self._failures == 0:
                self._best = values[improved]
        elif self._background and self._policy.on_sigterm:
            self._stage_ahead(values, data)

    def save(self, step: int | None = None, *, metrics: dict[str, float] | None = None, reason: str = "manual") -> None:
        """Save now and return when it is committed; raises PlatformError when it fails, Fenced when superseded."""
        if step is not None:
            self._step = int(step)
        self._link.acquire()
        values = {name: float(value) for name, value in (metrics or {}).items()}
        staged = self._stager.stage(self._objects, self._step, STOP + reason, values, {})
        if staged is None:
            raise PlatformError(f"Step {self._step} cannot be saved now: both staging buffers are in use.")
        failed = self._commit(staged, wait=True)
        if failed is not None:
            self._ordered_step = None
            raise PlatformError(failed)

    def wait(self) -> None:
        """Return when everything that was ordered is committed; raises PlatformError when the newest order failed."""
        self._abstain()
        failed = self._finish_orders()
        if failed is not None:
            raise PlatformError(failed)

    def close(self) -> None:
        """Commit what was ordered and let the saver go."""
        self._finish_orders()
        self._link.close()

    def _abstain(self) -> None:
        """Where nothing is registered, have the other ranks not wait for this one."""
        if self._rounds is not None and not self._objects:
            self._rounds.abstain()

    # -- when

    def _every_s(self) -> float:
        every_s = self._policy.every_s or intervals.periodic_s(self._stager.stall_s, self._upload_s)
        return min(every_s, intervals.rolling_s(self._upload_s)) if self._rolling else every_s

    def _seconds_since(self, then_ns: int) -> float:
        return (self._clock.boot_ns() - then_ns) / 1e9

    def _improved(self, values: dict[str, float]) -> str | None:
        """Return the metric that is better than ever, if it is."""
        rule = self._policy.on_improve
        if rule is None:
            return None
        name, direction = rule
        if name not in values:
            known = ", ".join(values) or "none"
            raise UserError(
                f"checkpoint on_improve needs the metric {name!r} in ctx.checkpoint.step(metrics=...); got: {known}."
            )
        if not math.isfinite(values[name]):
            return None
        if not self._best_known:
            self._best = savers.best_value(self._link.acquire(fresh=True), name)
            self._best_known = True
        better = self._best is None or (values[name] < self._best if direction == "min" else values[name] > self._best)
        return name if better else None

    # -- how

    def _step_together(self, together: rounds.Rounds, values: dict[str, float], data: dict[str, int | None]) -> None:
        """Do what rank 0 has ordered for this step; as rank 0, order first."""
        if together.leads and self._objects:
            improved = self._improved(values)
            if improved or self._seconds_since(self._last_order_ns) >= self._every_s():
                if together.propose(self._step, "best" if improved else "periodic"):
                    self._last_order_ns = self._clock.boot_ns()
                    if improved and self._failures == 0:
                        self._best = values[improved]
            elif self._policy.on_sigterm and self._staging_due():
                together.propose(self._step, "")
        together.judge(self._step)
        reason = together.due(self._step)
        if reason is None or not self._objects:
            return
        if reason:
            self._order(reason, values, data)
        else:
            self._stage_now(values, data)

    def _stage_ahead(self, values: dict[str, float], data: dict[str, int | None]) -> None:
        """Copy in case of a stop, as often as it costs at most one hundredth of the time."""
        if self._staging_due():
            self._stage_now(values, data)

    def _staging_due(self) -> bool:
        if not self._stager.stall_s:
            self._stager.prepare(self._objects)
        return self._seconds_since(self._last_stage_ns) >= intervals.staging_s(self._stager.stall_s)

    def _stage_now(self, values: dict[str, float], data: dict[str, int | None]) -> None:
        staged = self._stager.stage(self._objects, self._step, "", values, data)
        if staged is not None:
            self._note(staged)
            if staged[2]:
                self._commit(staged, wait=False)

    def _order(self, reason: str, values: dict[str, float], data: dict[str, int | None]) -> None:
        """Stage and have it committed; a failing store is reported and training goes on, until it failed too often."""
        self._last_order_ns = self._clock.boot_ns()
        try:
            self._link.acquire()
            staged = self._stager.stage(self._objects, self._step, reason, values, data)
            if staged is not None:
                self._commit(staged, wait=False)
        except (PlatformError, OSError) as error:
            self._failed(str(error))
        if not self._background:
            self._take(self._link.outcomes())

    def _save_last(self, code: str, values: dict[str, float], data: dict[str, int | None]) -> None:
        try:
            self._link.acquire()
            staged = self._stager.stage(self._objects, self._step, STOP + code, values, data)
            if staged is not None:
                self._commit(staged, wait=False)
        except (PlatformError, OSError) as error:
            self._emit("warning", {"message": f"checkpoint of step {self._step} failed: {error}"})

    def _commit(self, staged: tuple[int, int, str], *, wait: bool) -> str | None:
        """Order a commit; returns why it failed when that is known already."""
        index, sequence, why = staged
        self._note(staged)
        self._link.commit(index, sequence, self._step, why)
        self._newest_order = sequence
        self._ordered_step = self._step
        if wait:
            outcomes = self._link.wait(sequence)
            mine = next((one.error for one in outcomes if one.sequence == sequence), None)
            self._take([one for one in outcomes if one.sequence != sequence or one.error is None])
            return mine
        return None

    def _note(self, staged: tuple[int, int, str]) -> None:
        self._staged_step = self._step
        self._last_stage_ns = self._clock.boot_ns()

    def _finish_orders(self) -> str | None:
        """Wait for what was ordered; returns why the newest order failed."""
        if not self._newest_order:
            return None
        outcomes = self._link.wait(self._newest_order, LAST_WAIT_S)
        failed = next((one.error for one in outcomes if one.sequence == self._newest_order and one.error), None)
        for one in outcomes:
            self._stager.settled(one.sequence)
            if one.error is not None and not one.superseded:
                self._emit("warning", {"message": f"checkpoint of step {one.step} failed: {one.error}"})
        return failed

    def _take(self, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            self._stager.settled(one.sequence)
            if one.error is None:
                self._failures = 0
                self._upload_s = one.upload_s
                self._check_budget(one)
            elif not one.superseded:
                self._best_known = False
                if self._ordered_step == one.step:
                    self._ordered_step = None
                if one.late:  # no reason to end training: the rank may come round
                    self._emit("warning", {"message": f"checkpoint of step {one.step} is not whole: {one.error}"})
                else:
                    self._failed(one.error)

    def _failed(self, error: str) -> None:
        self._failures += 1
        self._emit("warning", {"message": f"checkpoint of step {self._step} failed ({self._failures}): {error}"})
        if self._failures >= MAX_FAILURES:
            raise PlatformError(f"Saving a checkpoint failed {self._failures} times in a row; the last time: {error}")

    def _check_budget(self, outcome: Outcome) -> None:
        """When a stop would not leave the time to upload a whole state, warn once, and upload all the time."""
        if self._grace_s is None or not outcome.bytes_per_s:
            return
        size = self._stager.size_bytes
        self._rolling = not intervals.fits(size, self._grace_s, outcome.bytes_per_s)
        if self._rolling and not self._warned:
            self._warned = True
            words = (
                f"a checkpoint of {size / 2**20:.0f} MiB at {outcome.bytes_per_s / 2**20:.0f} MiB/s does not fit into "
                f"grace={self._grace_s:g} s: a stop may lose the work since the last upload, so from now on one follows the "
                "other. Raise grace=, or save less."
            )
            self._emit("warning", {"message": words})
