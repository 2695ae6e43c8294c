"""Intake, flow and drivers in any order, with a crash at any statement: no run twice, no event lost.

A model holds what was acknowledged. Whatever happens in between, in the end every acknowledged event has, for each
subscription that it matched, exactly one run or a reason why not.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from trainlet.core import events
from trainlet_functions.triggers import acceptance, registry, tables, trails
from trainlet_functions.triggers.engine import Engine
from trainlet_functions.triggers.matching import Matcher

PROJECT = "default"
KINDS = ("created", "changed")
NAMES = ("one", "batch", "queue")
_WRITES = ("INSERT", "UPDATE", "DELETE")


class Crash(BaseException):
    """The process dies here."""


class Fault:
    """Dies at the n-th statement from now that writes something, before or after the database has done it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._left: int | None = None
        self._after = False
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "after_cursor_execute", self._done)
        sa.event.listen(engine, "commit", self._commit)

    def plan(self, number: int, *, after: bool) -> None:
        self._left, self._after = number, after

    def clear(self) -> None:
        self._left = None

    def _step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                raise Crash

    def _before(self, _conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not self._after and statement.startswith(_WRITES):
            self._step()

    def _done(self, _conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._after and statement.startswith(_WRITES):
            self._step()

    def _commit(self, _conn: Any) -> None:
        if not self._after:
            self._step()


class Machine(RuleBasedStateMachine):
    """People send and change triggers, time passes, drivers finish runs, and processes die."""

    fresh: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).fresh()
        engine = self.world.database.engine
        engine.dispose()  # a process dies here, not the machine: nothing has to wait for the disk
        sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        self.fault = Fault(engine)
        self.world.subscribe("one", "created")
        self.world.subscribe("batch", "created", many=True, window_s=30, max_batch=3)
        self.world.subscribe("queue", "changed", concurrency="queue")
        self.acknowledged: dict[str, str] = {}
        self.sent: list[events.Event] = []

    def _die(self) -> None:
        """End the process: with it go its connections, and no statement that was cut short keeps a lock."""
        gc.collect()  # SQLite holds a closed connection's locks for as long as a cursor of it lives
        self.world.database.engine.dispose()
        self.world.matcher = Matcher()
        self.world.engine = Engine(self.world.database, self.world.matcher)

    def crashing(self, action: Callable[[], Any], at: int | None, after: bool) -> bool:
        """Do something, dying at a statement; then come back as a new process. Returns whether it was done."""
        if at is not None:
            self.fault.plan(at, after=after)
        died = False
        try:
            action()
        except Crash:
            died = True
        self.fault.clear()
        if died:
            self._die()
        return not died

    crashes = st.tuples(st.none() | st.integers(0, 30), st.booleans())

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), crash=crashes)
    def send_new(self, kinds: list[str], crash: tuple[int | None, bool]) -> None:
        given = []
        for kind in kinds:
            number = len(self.sent)
            given.append(events.make(kind, "/model", f"e{number}", {"uri": f"u{number}"}))
            self.sent.append(given[-1])
        self._send(given, crash)

    @rule(data=st.data(), crash=crashes)
    def send_again(self, data: st.DataObject, crash: tuple[int | None, bool]) -> None:
        if self.sent:
            self._send(data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=4)), crash)

    def _send(self, given: list[events.Event], crash: tuple[int | None, bool]) -> None:
        if self.crashing(lambda: self.world.do(acceptance.accept, PROJECT, given, self.world.matcher), *crash):
            self.acknowledged.update({event.id: event.type for event in given})

    @rule(crash=crashes, seconds=st.sampled_from([0, 1, 31]))
    def work(self, crash: tuple[int | None, bool], seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.crashing(lambda: self.world.engine.work(), *crash)

    @rule(data=st.data(), state=st.sampled_from(["succeeded", "failed"]))
    def finish(self, data: st.DataObject, state: str) -> None:
        running = [run.id for run in self.world.runs() if run.state == "running"]
        if running:
            self.world.end(data.draw(st.sampled_from(running)), state)

    @rule(name=st.sampled_from(NAMES), crash=crashes)
    def pause_and_resume(self, name: str, crash: tuple[int | None, bool]) -> None:
        self.world.do(registry.pause, PROJECT, name, "the model says so")
        self.crashing(lambda: self.world.engine.work(), *crash)
        self.world.do(registry.resume, PROJECT, name)

    @invariant()
    def no_event_has_two_runs_of_one_trigger(self) -> None:
        table = tables.matches
        with self.world.database.read() as tx:
            rows = tx.all(sa.select(table.c.trigger, table.c.event, table.c.replay))
            waiting = {row.name: row.waiting for row in tx.all(sa.select(tables.triggers))}
            held = Counter(row.trigger for row in tx.all(sa.select(table.c.trigger).where(table.c.state == "held")))
        assert len(rows) == len(set(rows))
        assert {name: held[name] for name in NAMES} == waiting, "what waits is counted"

    def teardown(self) -> None:
        """Let everything come to rest: now every acknowledged event must have arrived."""
        try:
            for _ in range(100):
                self.world.wait(700)
                running = [run.id for run in self.world.runs() if run.state == "running"]
                for run in running:
                    self.world.end(run)
                if not running:
                    break
            given = Counter(str(uri) for run in self.world.runs() for uri in _listed(run.params["data"]))
            for event_id, kind in self.acknowledged.items():
                (view,) = self.world.look(trails.by_id, PROJECT, event_id)
                states = {match.trigger: match.state for match in view.matches}
                wanted = ("one", "batch") if kind == "created" else ("queue",)
                assert states == dict.fromkeys(wanted, "started")
                assert given["u" + event_id[1:]] == len(wanted)
        finally:
            self.world.database.close()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.fixture
def worlds(tmp_path: Path, make_world: Callable[[str], Any]) -> Iterator[Callable[[], Any]]:
    numbers = iter(range(1_000_000))
    yield lambda: make_world(f"sqlite:///{tmp_path / f'{next(numbers)}.db'}")


def test_T4_each_event_starts_at_most_one_run_per_subscription_and_none_is_lost(worlds: Callable[[], Any]) -> None:
    machine = type("Model", (Machine,), {"fresh": staticmethod(worlds)})
    run_state_machine_as_test(
        machine,
        settings=hypothesis.settings(
            max_examples=12,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
