"""The state machine against a plain Python model: any order of creations, claims, ends, losses, cancels and time.

The model knows what may happen and nothing about SQL. After every step the task that people see must be the model's,
and the tables must keep T1 (one live attempt, epochs only grow), T2 (the past writes nothing) and T5 (repeats are
harmless).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from trainlet.core import wire
from trainlet.core.clocks import ManualClock
from trainlet.core.errors import AccessError, ConflictError
from trainlet.core.settings import Limits
from trainlet.core.specs import Entry, FunctionSpec, GpuRequest, Resources, Retries
from trainlet_functions.state import attempts, claims, devices, functions, runs, schema, supervisor, tasks
from trainlet_functions.state.database import Capacity, Database
from trainlet_functions.state.problems import FencedAttempt, Taken

KEYS = [f"run.step.{index}" for index in range(3)]
WORKERS = ["w1", "w2"]
AGES = st.sampled_from([0, 0, 0, 1, 2])  # which epoch somebody speaks of: mostly the current one
SLOTS = 2
SPEC = FunctionSpec(
    name="step",
    bundle="0" * 64,
    entry=Entry(module="m", qualname="step"),
    resources=Resources(gpus=(GpuRequest(sku="A100-80GB", count=1),)),
    retries=Retries(times=1, delay_s=0),
)
LEASE_S = Limits().lease_s
STOP_S = LEASE_S + SPEC.grace_s
PICKS = st.sampled_from([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])


@dataclass
class Model:
    """What a task must look like."""

    value: int = 0
    state: str = "queued"
    epoch: int = 0
    worker: str = ""
    failures: int = 0
    losses: int = 0
    stopping: bool = False
    output: Any = None
    ready_s: float = 0.0
    lease_s: float = 0.0
    stop_s: float = math.inf
    ended: dict[int, str | None] = field(default_factory=dict)


class StateMachine(RuleBasedStateMachine):
    """Everybody who may act on the platform, in any order; on a SQLite file, or on an empty database that is given."""

    def __init__(self, fresh: Callable[[], str] | None = None) -> None:
        super().__init__()
        self.fresh = fresh

    @initialize()
    def start(self) -> None:
        self.folder = TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(attempts, "MAX_LOSSES", 3)
        self.clock = ManualClock()
        self.seconds = 0.0
        url = self.fresh() if self.fresh is not None else f"sqlite:///{Path(self.folder.name) / 'state.db'}"
        self.database = Database(url, self.clock, capacity=Capacity(owns_devices=True, cpu_slots=4))
        self.database.migrate()
        self.supervisor = supervisor.Supervisor(self.database)
        self.supervisor.tick()
        self.model: dict[str, Model] = {}
        self.order: list[str] = []
        self.tokens: dict[tuple[str, int], str] = {}
        self.canceled = False
        with self.database.write() as tx:
            functions.register(tx, "default", SPEC)
            found = [wire.Device(uuid=f"GPU-{index}", sku="A100-80GB") for index in range(SLOTS)]
            devices.register(tx, found)
            runs.create(tx, "default", "run", wire.RunCreate(pipeline="p", graph={}))
        for key in KEYS[:2]:
            self._create(key, 0)

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.patch.undo()
            self.folder.cleanup()

    def _any(self, *states: str) -> bool:
        return any(one.state in states for one in self.model.values())

    # -- the model's own admission: the oldest ready tasks get the free devices

    def _admit(self) -> None:
        busy = sum(one.state in ("dispatched", "running") for one in self.model.values())
        for key in self.order:
            one = self.model[key]
            if busy < SLOTS and one.state == "queued" and one.ready_s <= self.seconds:
                one.state, one.epoch, busy = "dispatched", one.epoch + 1, busy + 1

    def _requeue(self, one: Model, delay_s: float = 0.0) -> None:
        self._end(one, "queued")
        one.ready_s = self.seconds + delay_s

    def _end(self, one: Model, state: str) -> None:
        one.state, one.worker, one.stopping, one.stop_s = state, "", False, math.inf

    def _stop(self, one: Model) -> None:
        if not one.stopping:
            one.stopping, one.stop_s = True, self.seconds + STOP_S

    # -- what people do

    @rule(key=st.sampled_from(KEYS), value=st.integers(0, 1))
    def create(self, key: str, value: int) -> None:
        self._create(key, value)

    def _create(self, key: str, value: int) -> None:
        body = wire.TaskCreate(run_id="run", node="step", function="step", digest=SPEC.digest(), args={"value": value})
        known = self.model.get(key)
        try:
            with self.database.write() as tx:
                _, made = tasks.create(tx, "default", key, body)
        except ConflictError:
            assert self.canceled if known is None else known.value != value
            return
        assert made == (known is None) and (known is None or known.value == value)
        if known is None:
            assert not self.canceled
            self.model[key] = Model(value=value, ready_s=self.seconds)
            self.order.append(key)
            self.clock.advance(0.001)
            self.seconds += 0.001
        self._admit()

    @rule(key=st.sampled_from(KEYS), sure=st.booleans())
    @precondition(lambda self: self._any("running"))
    def cancel(self, key: str, sure: bool) -> None:
        one = self.model.get(key)
        if one is None or not sure:
            return
        with self.database.write() as tx:
            tasks.cancel(tx, "default", key, "enough")
        if one.state in ("queued", "dispatched"):
            self._end(one, "canceled")
        elif one.state == "running":
            self._stop(one)
        self._admit()

    @rule(sure=st.integers(0, 3))
    @precondition(lambda self: self._any("running"))
    def cancel_run(self, sure: int) -> None:
        if sure < 3:
            return
        with self.database.write() as tx:
            runs.cancel(tx, "default", "run", "enough")
        self.canceled = True
        for one in self.model.values():
            if one.state in ("queued", "dispatched"):
                self._end(one, "canceled")
            elif one.state == "running":
                self._stop(one)

    @rule()
    @precondition(lambda self: self.canceled or self._any("failed", "canceled"))
    def resume(self) -> None:
        with self.database.write() as tx:
            runs.resume(tx, "default", "run", wire.Resume())
        self.canceled = False
        for one in self.model.values():
            one.stopping, one.stop_s = False, math.inf
            if one.state in ("failed", "canceled"):
                one.failures = one.losses = 0
                self._requeue(one)
        self._admit()

    # -- what workers do

    @rule(key=st.sampled_from(KEYS), age=AGES, worker=st.sampled_from(WORKERS))
    def claim(self, key: str, age: int, worker: str) -> None:
        one = self.model.get(key)
        epoch = max(1, (one.epoch if one else 1) - age)
        who = attempts.WorkerIdentity("default", "step", worker)
        body = wire.ClaimRequest(worker=worker, nonce=f"{key}.{epoch}")
        free = one is not None and one.state == "dispatched" and one.epoch == epoch
        mine = one is not None and one.state == "running" and one.epoch == epoch and one.worker == worker
        try:
            with self.database.write() as tx:
                reply = claims.claim(tx, who, key, epoch, body)
        except Taken:
            assert not free and not mine
            return
        assert one is not None and (free or mine)
        assert len(reply.devices) == 1
        self.tokens[key, epoch] = reply.token
        one.state, one.worker, one.lease_s = "running", worker, self.seconds + LEASE_S

    @rule(worker=st.sampled_from(WORKERS))
    @precondition(lambda self: self._any("dispatched"))
    def claim_next(self, worker: str) -> None:
        who = attempts.WorkerIdentity("default", "step", worker)
        waiting = [key for key in self.order if self.model[key].state == "dispatched"]
        with self.database.write() as tx:
            nonce = f"{waiting[0]}.{self.model[waiting[0]].epoch}" if waiting else "none"
            reply = claims.claim_next(tx, who, wire.ClaimRequest(worker=worker, nonce=nonce))
        assert (reply.task.key if reply else None) == (waiting[0] if waiting else None)
        if reply is not None:
            one = self.model[reply.task.key]
            self.tokens[reply.task.key, reply.epoch] = reply.token
            one.state, one.worker, one.lease_s = "running", worker, self.seconds + LEASE_S

    @rule(pick=PICKS, step=st.integers(0, 3))
    @precondition(lambda self: self.tokens)
    def heartbeat(self, pick: int, step: int) -> None:
        key, epoch = list(self.tokens)[-1 - pick % len(self.tokens)]  # mostly the newest
        one = self.model[key]
        body = wire.HeartbeatRequest(worker="w", metrics={"epoch": epoch}, progress={"done": step})
        current = one is not None and one.state == "running" and one.epoch == epoch
        try:
            with self.database.write() as tx:
                ref = attempts.authenticate(tx, key, epoch, self.tokens.get((key, epoch), "none"))
                reply = attempts.heartbeat(tx, ref, body)
        except (FencedAttempt, AccessError):
            assert not current
            return
        assert one is not None and current
        assert (reply.directive == "stop") == one.stopping
        one.lease_s = self.seconds + LEASE_S

    @rule(pick=PICKS, outcome=st.sampled_from(["succeeded", "failed", "preempted", "preempted"]))
    @precondition(lambda self: self.tokens)
    def finish(self, pick: int, outcome: str) -> None:
        key, epoch = list(self.tokens)[-1 - pick % len(self.tokens)]  # mostly the newest
        one = self.model[key]
        error = wire.ErrorInfo(kind="user", message="boom") if outcome == "failed" else None
        output = {"epoch": epoch} if outcome == "succeeded" else None
        body = wire.FinishRequest.model_validate(
            {
                "worker": "w",
                "outcome": outcome,
                "output": output,
                "error": None if error is None else error.model_dump(),
            }
        )
        current = one is not None and one.state == "running" and one.epoch == epoch
        try:
            with self.database.write() as tx:
                ref = attempts.authenticate(tx, key, epoch, self.tokens.get((key, epoch), "none"))
                attempts.finish(tx, ref, body)
        except (FencedAttempt, AccessError):
            assert not current
            return
        assert one is not None
        if not current:
            assert one.ended[epoch] == outcome  # only a repetition is answered
            return
        one.ended[epoch] = outcome
        if outcome == "succeeded":
            one.output = output
            self._end(one, "succeeded")
        elif one.stopping:
            self._end(one, "canceled")
        elif outcome == "preempted":
            self._again(one)
        else:
            one.failures += 1
            if one.failures > SPEC.retries.times:
                self._end(one, "failed")
            else:
                self._requeue(one)
        self._admit()

    @rule(worker=st.sampled_from(WORKERS))
    @precondition(lambda self: self._any("running"))
    def worker_dies(self, worker: str) -> None:
        with self.database.write() as tx:
            gone = attempts.worker_gone(tx, worker, "killed")
        mine = [key for key in self.order if self.model[key].state == "running" and self.model[key].worker == worker]
        assert sorted(gone) == sorted(mine)
        for key in mine if len(mine) < 2 else gone:
            self._lose(self.model[key])
            self._admit()

    def _lose(self, one: Model) -> None:
        one.ended[one.epoch] = None
        if one.stopping:
            self._end(one, "canceled")
        else:
            self._again(one)

    def _again(self, one: Model) -> None:
        one.losses += 1
        if one.losses >= attempts.MAX_LOSSES:
            self._end(one, "failed")
        else:
            self._requeue(one, 0.0 if one.losses == 1 else min(30.0, 0.25 * 2 ** min(one.losses - 2, 7)))

    # -- what time does

    @rule(seconds=st.sampled_from([1.0, 5.0, 16.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self.seconds < until:
            step = min(4.0, until - self.seconds)
            self.clock.advance(step)
            self.seconds += step
            self._looks()

    @rule(seconds=st.sampled_from([8.0, 3600.0]))
    def the_machine_sleeps(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.seconds += seconds
        for one in self.model.values():
            one.lease_s = self.seconds + 2 * LEASE_S
            one.stop_s = self.seconds + STOP_S if one.stopping else math.inf
        self._looks()

    def _looks(self) -> None:
        self.supervisor.tick()
        for deadline in ("lease_s", "stop_s"):
            running = [one for key in self.order if (one := self.model[key]).state == "running"]
            for one in sorted(running, key=attrgetter(deadline)):
                if getattr(one, deadline) < self.seconds:
                    self._lose(one)
        self._admit()

    # -- what must hold after every step

    @invariant()
    def everybody_sees_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.database.read() as tx:
            for key, one in self.model.items():
                view = tasks.get(tx, "default", key)
                assert (key, view.state, view.epoch, view.output) == (key, one.state, one.epoch, one.output)
                assert view.reason

    @invariant()
    def T1_one_live_attempt_and_epochs_only_grow(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.database.read() as tx:
            rows = tx.all(sa.select(schema.attempts).order_by(schema.attempts.c.task, schema.attempts.c.epoch))
            lines = tx.all(sa.select(schema.timeline).order_by(schema.timeline.c.id))
            held = tx.all(sa.select(schema.devices).where(schema.devices.c.task.is_not(None)))
        live = [(row.task, row.epoch) for row in rows if row.state == "running"]
        assert live == sorted((key, one.epoch) for key, one in self.model.items() if one.state == "running")
        seen: dict[str, int] = {}
        for line in lines:
            assert line.epoch >= seen.get(line.task, 0)
            seen[line.task] = line.epoch
        wanted = sorted(key for key, one in self.model.items() if one.state in ("dispatched", "running"))
        assert sorted(row.task for row in held) == wanted


TestStateMachine = pytest.mark.slow(StateMachine.TestCase)
TestStateMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
def test_the_state_machine_is_the_same_on_postgresql(postgres: Callable[[], str]) -> None:
    few = settings(TestStateMachine.settings, max_examples=2, stateful_step_count=25)
    run_state_machine_as_test(lambda: StateMachine(postgres), settings=few)
