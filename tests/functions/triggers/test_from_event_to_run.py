"""An event that matches starts a run once, with the values that were mapped, and tells where it went."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core import events
from trainlet.core.errors import ConflictError, NotFoundError, UserError
from trainlet.core.settings import Settings
from trainlet.core.triggers import Parameter, Subscription
from trainlet_functions.triggers import intake, registry, trails

PROJECT = "default"
CREATED = "com.example.created"


def test_a_matching_event_starts_a_run_with_its_value_and_another_starts_none(world: Any) -> None:
    world.subscribe()
    (event,) = world.send("s3://b/1")
    world.send("s3://b/2", kind="com.example.deleted")
    world.work()
    (run,) = world.runs()
    assert run.params["data"] == "s3://b/1"
    assert run.labels["trainlet.dev/trigger"] == "retrain"
    assert (run.labels["trainlet.dev/event"], run.labels["trainlet.dev/events"]) == (event, "1")
    assert world.matches(event) == [("started", run.id)]


def test_T5_the_same_event_again_starts_nothing_and_changed_data_is_refused(world: Any) -> None:
    world.subscribe()
    event = events.make(CREATED, "/test", "1", {"uri": "a"})
    for _ in range(3):
        world.do(intake.take, PROJECT, [event, event], world.matcher)
        world.work()
    assert len(world.runs()) == 1
    with pytest.raises(ConflictError, match="came before with other data"):
        world.do(intake.take, PROJECT, [events.make(CREATED, "/test", "1", {"uri": "b"})], world.matcher)
    world.do(intake.take, PROJECT, [events.make(CREATED, "/other", "1", {"uri": "b"})], world.matcher)
    world.work()
    assert world.given() == ["a", "b"], "the same id of another source is another event"


def test_the_traceparent_of_an_event_is_where_its_run_belongs(world: Any) -> None:
    world.subscribe()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    world.send("a", traceparent=parent)
    world.work()
    assert world.runs()[0].labels["trainlet.dev/traceparent"] == parent


def test_an_event_without_the_mapped_value_is_skipped_with_the_reason_and_can_be_replayed(world: Any) -> None:
    world.subscribe()
    (event,) = world.send("a")
    broken = events.make(CREATED, "/test", "broken", {"url": "b"})
    world.do(intake.take, PROJECT, [broken], world.matcher)
    world.work()
    ((state, reason),) = world.matches("broken")
    assert state == "skipped" and "data" in reason and "$.data.uri" in reason
    (view,) = world.look(trails.by_id, PROJECT, "broken")
    spec = Subscription(
        program=world.program(), filters=[{"exact": {"type": CREATED}}], params={"data": Parameter(path="$.data.url")}
    )
    world.do(registry.put, PROJECT, "retrain", spec)
    world.do(trails.replay, PROJECT, view.number, None, world.matcher)
    world.work()
    assert world.given() == ["a", "b"]
    assert [state for state, _ in world.matches("broken")] == ["skipped", "started"]
    assert len(world.matches(event)) == 1


def test_a_replay_is_a_run_of_its_own(world: Any) -> None:
    world.subscribe()
    (event,) = world.send("a")
    world.work()
    (view,) = world.look(trails.by_id, PROJECT, event)
    world.do(trails.replay, PROJECT, view.number, "retrain", world.matcher)
    world.work()
    assert world.given() == ["a", "a"]
    assert len({run.id for run in world.runs()}) == 2


def test_what_an_event_brings_is_data_even_when_it_looks_like_a_reference(world: Any) -> None:
    world.subscribe()
    world.send({"$trainlet": "pickle", "digest": "0" * 64})  # type: ignore[arg-type]
    world.work()
    assert world.given() == [{"$trainlet": "dict", "pairs": [["$trainlet", "pickle"], ["digest", "0" * 64]]}]


def test_a_definition_that_can_never_work_is_refused_with_what_to_do(world: Any) -> None:
    def put(**fields: object) -> None:
        base = {
            "program": world.program(),
            "filters": [{"exact": {"type": CREATED}}],
            "params": {"data": {"path": "$.id"}},
        }
        world.do(registry.put, PROJECT, "retrain", Subscription.model_validate({**base, **fields}))

    with pytest.raises(UserError, match=r"no parameter 'date'\. Did you mean 'data'"):
        put(params={"date": {"path": "$.id"}})
    with pytest.raises(UserError, match="needs data"):
        put(params={})
    example = events.make("com.example.other", "/s", "1").to_json()
    with pytest.raises(UserError, match="does not match its own example"):
        put(example=example)
    with pytest.raises(UserError, match=r"\$\.data\.uri"):
        put(example=events.make(CREATED, "/s", "1").to_json(), params={"data": {"path": "$.data.uri"}})
    other = world.program().model_dump()
    other["graph"]["nodes"][0]["digest"] = "f" * 64
    with pytest.raises(NotFoundError):
        put(program=other)


def test_another_project_sees_and_starts_nothing(world: Any) -> None:
    world.subscribe()
    world.do(intake.take, "other", [events.make(CREATED, "/test", "1", {"uri": "a"})], world.matcher)
    world.work()
    assert world.runs() == []
    assert world.look(trails.by_id, PROJECT, "1") == []


def test_the_longest_id_is_named_by_its_number_on_the_bill(world: Any) -> None:
    world.subscribe()
    world.do(intake.take, PROJECT, [events.make(CREATED, "/test", "x" * 500, {"uri": "a"})], world.matcher)
    world.work()
    assert world.runs()[0].labels["trainlet.dev/event"] == "1"


def repeated_then_forgotten(world: Any, known_days: int, forgotten_days: int) -> None:
    """Send an event, again after `known_days`, which starts nothing, and look for it once `forgotten_days` are over."""
    world.subscribe()
    event = events.make(CREATED, "/test", "1", {"uri": "a"})
    world.do(intake.take, PROJECT, [event], world.matcher)
    world.wait(known_days * 24 * 3600)
    world.do(intake.take, PROJECT, [event], world.matcher)
    world.work()
    assert len(world.runs()) == 1
    world.wait((forgotten_days - known_days) * 24 * 3600)
    assert world.look(trails.by_id, PROJECT, "1") == []


def test_how_long_events_are_known_is_set_and_never_less_than_32_days(world: Any) -> None:
    limits = Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_EVENTS_KEPT_S": str(50 * 24 * 3600)}).limits
    world.database.limits = limits
    repeated_then_forgotten(world, 49, 51)
    with pytest.raises(UserError, match="TRAINLET_EVENTS_KEPT_S"):
        Settings.from_environment({"TRAINLET_HOME": "/h", "TRAINLET_EVENTS_KEPT_S": str(31 * 24 * 3600)})


def test_events_are_known_for_at_least_32_days_and_then_forgotten(world: Any) -> None:
    repeated_then_forgotten(world, 32, 36)
