"""Where nothing has to be waited for, an event's run is there when its sender has the answer; a mistake costs no event."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.core import events
from trainlet_functions.triggers import acceptance, firing

PROJECT = "default"
CREATED = "com.example.created"


def accept(world: Any, *numbers: int) -> None:
    given = [events.make(CREATED, "/test", str(number), {"uri": f"u{number}"}) for number in numbers]
    world.do(acceptance.accept, PROJECT, given, world.matcher)


def test_the_run_is_there_with_the_answer_after_one_transaction(world: Any) -> None:
    world.subscribe()
    begun: list[bool] = []
    seen = lambda conn: begun.append("trainlet_write" in conn.get_execution_options())  # noqa: E731
    sa.event.listen(world.database.engine, "begin", seen)
    accept(world, 1)
    assert world.given() == ["u1"]
    assert begun.count(True) == 1
    assert world.trigger().waiting == 0 and world.trigger().next_at is None, "nothing is left for the engine"
    accept(world, 1)
    world.work()
    assert world.given() == ["u1"], "the same again starts nothing"


def test_a_sender_waits_for_one_run_of_two_triggers_and_the_engine_does_the_rest(world: Any) -> None:
    for name in ("a", "b", "c"):
        world.subscribe(name)
    accept(world, 1, 2, 3)
    assert len(world.runs()) == 2
    world.work()
    assert sorted(world.given()) == sorted(["u1", "u2", "u3"] * 3)


def test_what_must_wait_says_why_with_the_answer(world: Any) -> None:
    world.subscribe(concurrency="forbid")
    accept(world, 1)
    accept(world, 2)
    (run,) = world.runs()
    assert world.matches("2") == [("held", f"{run.id} runs (concurrency=forbid)")]
    world.end(run.id)
    assert world.given() == ["u1", "u2"]


def test_a_trigger_that_fails_loses_no_event_and_says_so(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe()
    with monkeypatch.context() as patch:
        patch.setattr(firing, "fire", lambda *_args, **_fields: 1 / 0)
        accept(world, 1)
        assert world.runs() == [] and world.trigger().waiting == 1
        world.work()
        assert "it could not start anything: ZeroDivisionError" in world.matches("1")[0][1]
    world.wait(60)
    assert world.given() == ["u1"]
