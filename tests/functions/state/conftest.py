"""A state room on SQLite, and on PostgreSQL when TRAINLET_TEST_POSTGRES names one; time moves only by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainlet.core import wire
from trainlet.core.clocks import ManualClock
from trainlet.core.specs import Entry, FunctionSpec, GpuRequest, Resources
from trainlet_functions.state import attempts, claims, devices, functions, runs, supervisor, tasks
from trainlet_functions.state.database import Capacity, Database

PROJECT = "default"


class World:
    """The platform's state, and the people and workers around it, in one-line sentences."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.tokens: dict[tuple[str, int], str] = {}
        self.claims: dict[tuple[str, int], wire.ClaimReply] = {}
        self.specs: dict[str, FunctionSpec] = {}
        self.supervisor = supervisor.Supervisor(database)
        self.deploy("step")

    def deploy(self, name: str, gpus: tuple[tuple[str, int], ...] = (), **options: Any) -> FunctionSpec:
        """Register a function."""
        wanted = tuple(GpuRequest(sku=sku, count=count) for sku, count in gpus)
        spec = FunctionSpec(
            name=name,
            bundle="0" * 64,
            entry=Entry(module="m", qualname=name),
            resources=Resources(gpus=wanted),
            **options,
        )
        with self.database.write() as tx:
            functions.register(tx, PROJECT, spec)
        self.specs[name] = spec
        return spec

    def install(self, *found: tuple[str, str]) -> None:
        """Give this machine devices: (uuid, SKU), SKU `any` for a generic virtual one."""
        with self.database.write() as tx:
            listed = [wire.Device(uuid=uuid, sku=sku, virtual=sku == devices.GENERIC) for uuid, sku in found]
            devices.register(tx, listed)

    def body(self, run: str = "run", function: str = "step", **fields: Any) -> wire.TaskCreate:
        """Return the body of a task."""
        waiting = fields.pop("dispatcher", None)
        lease = None if waiting is None else wire.DispatcherLease(id=waiting)
        digest = self.specs[function].digest()
        return wire.TaskCreate(run_id=run, node=function, function=function, digest=digest, dispatcher=lease, **fields)

    def create(self, key: str, function: str = "step", **fields: Any) -> wire.TaskView:
        """Create a task, as a dispatcher does."""
        with self.database.write() as tx:
            return tasks.create(tx, PROJECT, key, self.body(function=function, **fields))[0]

    def claim(
        self,
        key: str,
        epoch: int,
        worker: str = "w1",
        nonce: str = "n1",
        function: str = "step",
        project: str = PROJECT,
    ) -> wire.ClaimReply:
        """Claim an attempt, as a worker that got an event does."""
        who = attempts.WorkerIdentity(project, function, worker)
        with self.database.write() as tx:
            reply = claims.claim(tx, who, key, epoch, wire.ClaimRequest(worker=worker, nonce=nonce))
        self.tokens[key, reply.epoch] = reply.token
        self.claims[key, reply.epoch] = reply
        return reply

    def claim_next(self, worker: str = "w1", nonce: str = "n1", function: str = "step") -> wire.ClaimReply | None:
        """Ask for work, as an idle worker does."""
        who = attempts.WorkerIdentity(PROJECT, function, worker)
        with self.database.write() as tx:
            reply = claims.claim_next(tx, who, wire.ClaimRequest(worker=worker, nonce=nonce))
        if reply is not None:
            self.tokens[reply.task.key, reply.epoch] = reply.token
            self.claims[reply.task.key, reply.epoch] = reply
        return reply

    def running(self, key: str, function: str = "step", **fields: Any) -> wire.ClaimReply:
        """Create a task and claim it."""
        view = self.create(key, function=function, **fields)
        return self.claim(key, view.epoch, function=function)

    def beat(self, key: str, epoch: int = 1, worker: str = "w1", **fields: Any) -> wire.HeartbeatReply:
        """Send a heartbeat."""
        body = wire.HeartbeatRequest(worker=worker, **fields)
        with self.database.write() as tx:
            return attempts.heartbeat(tx, attempts.authenticate(tx, key, epoch, self.tokens[key, epoch]), body)

    def finish(
        self, key: str, epoch: int = 1, outcome: str = "succeeded", worker: str = "w1", **fields: Any
    ) -> wire.TaskView:
        """Finish an attempt."""
        body = wire.FinishRequest.model_validate({"worker": worker, "outcome": outcome, **fields})
        with self.database.write() as tx:
            return attempts.finish(tx, attempts.authenticate(tx, key, epoch, self.tokens[key, epoch]), body)

    def task(self, key: str) -> wire.TaskView:
        """Look at a task."""
        with self.database.read() as tx:
            return tasks.get(tx, PROJECT, key)

    def run(self, run_id: str = "run") -> wire.RunView:
        """Look at a run."""
        with self.database.read() as tx:
            return runs.get(tx, PROJECT, run_id)

    def do(self, function: Callable[..., Any], *args: Any, **fields: Any) -> Any:
        """Call a function of the state room in a transaction of its own."""
        with self.database.write() as tx:
            return function(tx, *args, **fields)

    def wait(self, seconds: float) -> None:
        """Let time pass, with the supervisor looking once a second as it does."""
        while seconds > 0:
            self.clock.advance(min(1.0, seconds))
            self.supervisor.tick()
            seconds -= 1.0


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """Return a migrated state room with one CPU function `step`."""
    clock = ManualClock()
    database = Database(database_url, clock, capacity=Capacity(owns_devices=True, cpu_slots=4))
    database.migrate()
    yield World(database, clock)
    database.close()


@pytest.fixture
def used() -> Callable[..., wire.LeaseEvent]:
    """Return a maker of usage: what a worker says after an attempt has held its device for so many seconds."""

    def make(world: World, key: str, held_s: float, epoch: int = 1, kind: str = "heartbeat") -> wire.LeaseEvent:
        claim = world.claims[key, epoch]
        lease, seq = f"{key}.{epoch}.0", round(held_s * 1000)
        return wire.LeaseEvent.model_validate(
            {
                "id": f"{lease}:{seq}:{kind}", "kind": kind, "lease": lease, "seq": seq, "task": key, "epoch": epoch,
                "run_id": claim.task.run_id, "function": claim.task.function,
                "device": claim.devices[0].model_dump(), "anchor_ns": claim.wall_anchor_ns,
                "elapsed_ns": round(held_s * 1e9),
            }
        )  # fmt: skip

    return make
