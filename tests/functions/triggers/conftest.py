"""A state room with a function, and triggers on it; time moves only by hand, and a driver is played by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.core import events, wire
from trainlet.core.clocks import ManualClock
from trainlet.core.specs import Entry, FunctionSpec
from trainlet.core.triggers import Flow, Parameter, Program, Schedule, Subscription, TriggerView
from trainlet_functions.state import functions, runs
from trainlet_functions.state.database import Database
from trainlet_functions.triggers import intake, registry, tables, trails
from trainlet_functions.triggers.engine import Engine
from trainlet_functions.triggers.matching import Matcher

PROJECT = "default"
CREATED = "com.example.created"
FUNCTION = FunctionSpec(name="step", bundle="0" * 64, entry=Entry(module="m", qualname="step"))


def program(pipeline: str = "retrain", **parameters: Any) -> Program:
    """Return a pipeline of one step that takes `data`."""
    node = {
        "id": "step",
        "function": "step",
        "digest": FUNCTION.digest(),
        "inputs": {"data": {"kind": "parameter", "name": "data"}},
    }
    return Program(
        pipeline=pipeline, graph={"name": pipeline, "parameters": parameters, "required": ["data"], "nodes": [node]}
    )


class World:
    """The platform's triggers and the events around them, in one-line sentences."""

    program = staticmethod(program)

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.matcher = Matcher()
        self.engine = Engine(database, self.matcher)
        self.sent = 0
        self.do(functions.register, PROJECT, FUNCTION)

    def do(self, function: Any, *args: Any, **fields: Any) -> Any:
        """Call a function of the room in a transaction of its own."""
        with self.database.write() as tx:
            return function(tx, *args, **fields)

    def look(self, function: Any, *args: Any, **fields: Any) -> Any:
        """Call a function of the room that only reads."""
        with self.database.read() as tx:
            return function(tx, *args, **fields)

    def subscribe(self, name: str = "retrain", kind: str = CREATED, *, many: bool = False, **flow: Any) -> TriggerView:
        """Register a subscription that maps `data`."""
        spec = Subscription(
            program=program(),
            filters=[{"exact": {"type": kind}}],
            params={"data": Parameter(path="$.data.uri", many=many)},
            flow=Flow(**flow),
        )
        return self.do(registry.put, PROJECT, name, spec)

    def schedule(self, name: str = "nightly", when: str = "every 1h", **fields: Any) -> TriggerView:
        """Register a schedule."""
        spec = Schedule(program=program(), when=when, params={"data": Parameter(path="$.data.at")}, **fields)
        return self.do(registry.put, PROJECT, name, spec)

    def send(self, *uris: str, kind: str = CREATED, **attributes: Any) -> list[str]:
        """Send new events in one request; returns their ids."""
        given = []
        for uri in uris:
            self.sent += 1
            given.append(events.make(kind, "/test", f"e{self.sent}", {"uri": uri}, **attributes))
        self.do(intake.take, PROJECT, given, self.matcher)
        return [event.id for event in given]

    def work(self) -> None:
        """Let the engine do what is due, until nothing is."""
        while self.engine.work():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass, with the engine looking as it does."""
        self.clock.advance(seconds)
        self.work()

    def end(self, run_id: str, state: str = "succeeded") -> None:
        """Finish a run, as its driver does."""
        self.do(runs.finish, PROJECT, run_id, wire.RunFinish(state=state))  # type: ignore[arg-type]
        self.work()

    def trigger(self, name: str = "retrain") -> TriggerView:
        """Look at a trigger."""
        return self.look(registry.get, PROJECT, name)

    def matches(self, event_id: str) -> list[tuple[str, str]]:
        """Return (state, run or reason) of what one event matched."""
        (found,) = self.look(trails.by_id, PROJECT, event_id)
        return [(match.state, match.run_id or match.reason) for match in found.matches]

    def runs(self) -> list[wire.RunView]:
        """Return the runs that triggers started, in the order of their start."""
        table = tables.firings
        with self.database.read() as tx:
            started = tx.all(sa.select(table.c.run_id).order_by(table.c.number))
            return [runs.get(tx, PROJECT, row.run_id) for row in started]

    def given(self) -> list[Any]:
        """Return what each run got as `data`, in the order of their start."""
        return [run.params["data"] for run in self.runs()]


def _open(url: str) -> World:
    clock = ManualClock()
    database = Database(url, clock)
    database.migrate()
    return World(database, clock)


@pytest.fixture
def make_world() -> Callable[[str], World]:
    """Return what makes a world on a database of one's own."""
    return _open


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """Return a migrated database with one function."""
    found = _open(database_url)
    yield found
    found.database.close()
