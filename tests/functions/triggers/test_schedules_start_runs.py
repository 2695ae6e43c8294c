"""A schedule starts its runs at its moments: one each, also with several replicas, and after a time of being away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from trainlet.core.errors import UserError
from trainlet_functions.triggers import registry, ticks, trails
from trainlet_functions.triggers.engine import Engine
from trainlet_functions.triggers.matching import Matcher

PROJECT = "default"
HOUR = 3600.0


def to_the_hour(world: Any) -> None:
    """Let time pass until a minute before an hour of UTC."""
    world.clock.advance(HOUR - 60 - world.clock.wall_ns() / 1e9 % HOUR)


def skipped(world: Any) -> list[str]:
    """Return why moments started nothing, the oldest first."""
    found = world.look(trails.list_, PROJECT, None, 500, "skipped")
    return [match.reason for event in reversed(found) for match in event.matches]


def test_each_moment_starts_one_run_that_knows_the_moment(world: Any) -> None:
    to_the_hour(world)
    view = world.schedule(when="0 * * * *", tz="Europe/Berlin")
    assert view.next_at is not None
    world.work()
    assert world.runs() == []
    world.wait(60)
    (run,) = world.runs()
    assert run.params["data"] == view.next_at.replace(".000Z", "Z")
    world.wait(60)
    world.end(run.id)
    world.wait(HOUR)
    assert len(world.runs()) == 2


@pytest.mark.parametrize(
    ("catch_up", "started", "told"),
    [("all", 5, 0), ("latest", 1, 4), ("none", 0, 5)],
)
def test_what_was_missed_is_made_up_for_as_the_policy_says(world: Any, catch_up: str, started: int, told: int) -> None:
    to_the_hour(world)
    world.schedule(when="0 * * * *", catch_up=catch_up, flow={"concurrency": "queue"})
    world.wait(4.5 * HOUR)
    while open_runs := [run for run in world.runs() if run.state == "running"]:
        world.end(open_runs[0].id)
    assert len(world.runs()) == started
    reasons = skipped(world)
    assert len(reasons) == told and all(f"(catch_up={catch_up})" in reason for reason in reasons)
    world.wait(0.5 * HOUR + 65)
    assert len(world.runs()) == started + 1, "the next moment is on time"


def test_a_moment_that_comes_while_a_run_goes_on_is_skipped_with_the_reason(world: Any) -> None:
    to_the_hour(world)
    world.schedule(when="0 * * * *", flow={"concurrency": "forbid"})
    world.wait(60)
    (run,) = world.runs()
    world.wait(HOUR)
    assert skipped(world) == [f"{run.id} runs (concurrency=forbid)"]
    world.end(run.id)
    world.wait(HOUR)
    assert len(world.runs()) == 2


def test_a_paused_schedule_tells_what_it_left_out_and_goes_on_with_the_next(world: Any) -> None:
    to_the_hour(world)
    world.schedule(when="0 * * * *")
    world.do(registry.pause, PROJECT, "nightly", "holidays")
    world.wait(60)
    assert world.runs() == [] and skipped(world) == ["the schedule is paused: holidays"]
    world.do(registry.resume, PROJECT, "nightly")
    world.work()
    assert world.runs() == []
    world.wait(HOUR)
    assert len(world.runs()) == 1


def test_years_away_leave_a_bounded_trace_and_one_run(world: Any) -> None:
    to_the_hour(world)
    first = world.schedule(when="* * * * *").next_at
    world.wait(3 * 366 * 24 * HOUR)
    assert len(world.runs()) == 1
    reasons = skipped(world)
    assert len(reasons) == ticks.SHOWN - 1
    assert reasons[0].endswith(f"so were all since {first.replace('.000Z', 'Z')}")


def test_several_replicas_fire_a_moment_once(make_world: Callable[[str], Any], database_url: str) -> None:
    world = make_world(database_url)
    to_the_hour(world)
    world.schedule(when="0 * * * *", flow={"concurrency": "allow"})
    world.clock.advance(60)
    barrier, problems = threading.Barrier(4), []

    def replica() -> None:
        engine = Engine(world.database, Matcher())
        barrier.wait(60)
        try:
            while engine.work():
                pass
        except Exception as error:  # noqa: BLE001 - told in the assertion
            problems.append(error)

    threads = [threading.Thread(target=replica) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert len(world.runs()) == 1
    assert len(world.look(trails.list_, PROJECT, None, 10, None)) == 1
    world.database.close()


def test_a_schedule_without_a_next_moment_is_refused_when_it_is_registered(world: Any) -> None:
    with pytest.raises(UserError, match="can never come"):
        world.schedule(when="0 0 30 2 *")
    with pytest.raises(UserError, match="no time zone 'Mars/Olympus'"):
        world.schedule(when="0 0 * * *", tz="Mars/Olympus")
