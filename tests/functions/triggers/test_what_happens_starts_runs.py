"""The platform's own events start runs: a run that ends starts the next, and no set of triggers goes round for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from trainlet.core import wire
from trainlet.core.triggers import Flow, Parameter, Subscription
from trainlet_functions.sinks import fanout
from trainlet_functions.state import runs, schema
from trainlet_functions.triggers import intake, registry, tables, trails

PROJECT = "default"
ENDED = "dev.trainlet.run.succeeded"


def follow(world: Any, name: str, *, after: str | None = None, kind: str = ENDED, **flow: Any) -> None:
    """Register a trigger that starts pipeline `name` when a run (of pipeline `after`) ends."""
    condition: list[dict[str, Any]] = [{"exact": {"type": kind}}]
    if after is not None:
        condition.append({"data": {"$.pipeline": after}})
    spec = Subscription(
        program=world.program(name),
        filters=condition,
        params={"data": Parameter(path="$.data.outputs.model", default="none", has_default=True)},
        flow=Flow(**flow),
    )
    world.do(registry.put, PROJECT, name, spec)


def work(world: Any) -> None:
    """Hand on what happened, and let the engine start what that starts."""
    while fanout.work(world.database, world.matcher):
        pass
    world.work()


def end(world: Any, run_id: str, **outputs: Any) -> None:
    world.do(runs.finish, PROJECT, run_id, wire.RunFinish(state="succeeded", outputs=outputs))
    work(world)


def begin(world: Any, run_id: str, pipeline: str) -> None:
    """Start a run as a person does."""
    world.do(runs.create, PROJECT, run_id, wire.RunCreate(pipeline=pipeline))


def end_all(world: Any) -> int:
    """End runs until none runs any more; returns how many triggers had started."""
    for _ in range(200):
        going = [run.id for run in world.runs() if run.state == "running"]
        if not going:
            return len(world.runs())
        end(world, going[0])
    raise AssertionError("the runs go on for ever")


def skipped(world: Any) -> list[str]:
    """Return why matched events started nothing."""
    found = world.look(trails.list_, PROJECT, None, 500, "skipped")
    return [match.reason for view in found for match in view.matches if match.state == "skipped"]


def test_a_run_that_ends_starts_the_next_with_its_result_once(world: Any) -> None:
    follow(world, "evaluate", after="train")
    begin(world, "first", "train")
    begin(world, "other", "prepare")
    end(world, "other")
    end(world, "first", model="models:/digits/7")
    (started,) = world.runs()
    assert (started.pipeline, started.params["data"]) == ("evaluate", "models:/digits/7")
    work(world)
    world.do(schema_open_again)
    work(world)
    assert len(world.runs()) == 1
    (event,) = world.look(trails.list_, PROJECT, None, 10, "started")
    assert (event.type, event.subject, event.source) == (ENDED, "first", "/projects/default")
    whole = world.look(trails.get, PROJECT, event.number).event
    assert whole["data"]["cost_nano"] == 0 and whole["traceparent"].startswith("00-")


def schema_open_again(tx: Any) -> None:
    """Make every event of the outbox due once more, as if its being handed on had never been noted."""
    tx.run(schema.outbox.update().where(schema.outbox.c.function.is_(None)).values(due_ns=tx.now_ns))


def test_T4_dying_while_events_are_handed_on_loses_none_and_doubles_none(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(world, "evaluate", after="train")
    begin(world, "first", "train")
    world.do(runs.finish, PROJECT, "first", wire.RunFinish(state="succeeded"))

    def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(fanout, "_mark", dies)
        with pytest.raises(RuntimeError):
            fanout.work(world.database, world.matcher)
    assert world.look(trails.list_, PROJECT, None, 10, None) == []
    work(world)
    assert len(world.runs()) == 1


def test_the_loop_guard_stops_a_trigger_that_its_own_run_would_start(world: Any) -> None:
    follow(world, "retrain")
    begin(world, "first", "by-hand")
    end(world, "first")
    assert end_all(world) == 1
    (reason,) = skipped(world)
    assert "loop guard" in reason and "max_repeats" in reason


def test_a_trigger_may_repeat_itself_as_often_as_it_says(world: Any) -> None:
    follow(world, "retrain", max_repeats=3)
    begin(world, "first", "by-hand")
    end(world, "first")
    assert end_all(world) == 4


def test_the_loop_guard_stops_two_triggers_that_would_start_each_other_for_ever(world: Any) -> None:
    follow(world, "ping", after="pong")
    follow(world, "pong", after="ping")
    begin(world, "first", "ping")
    end(world, "first")
    assert end_all(world) == 2
    assert [run.pipeline for run in world.runs()] == ["pong", "ping"]
    (reason,) = skipped(world)
    assert "pong -> ping" in reason


@hypothesis.given(
    edges=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6),
    repeats=st.integers(0, 1),
)
@hypothesis.settings(
    max_examples=12, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_whatever_starts_whatever_it_comes_to_an_end(
    make_world: Callable[[str], Any], tmp_path: Path, edges: set[tuple[int, int]], repeats: int
) -> None:
    """Triggers are edges between three pipelines; one run is started by hand."""
    path = tmp_path / "loops.db"
    for file in tmp_path.glob("loops.db*"):
        file.unlink()
    world = make_world(f"sqlite:///{path}")
    try:
        for before, after in sorted(edges):
            spec = Subscription(
                program=world.program(f"p{after}"),
                filters=[{"exact": {"type": ENDED}}, {"data": {"$.pipeline": f"p{before}"}}],
                params={"data": Parameter(default="x", has_default=True)},
                flow=Flow(max_repeats=repeats if len(edges) < 3 else 0),
            )
            world.do(registry.put, PROJECT, f"t{before}{after}", spec)
        begin(world, "first", "p0")
        end(world, "first")
        end_all(world)
        for row in world.look(lambda tx: tx.all(tables.firings.select())):
            names = row.chain.split(",")
            assert all(names.count(name) <= 2 for name in names)
    finally:
        world.database.close()


def test_S2_what_happens_in_a_project_starts_nothing_in_another(world: Any) -> None:
    follow(world, "evaluate")
    world.do(runs.create, "theirs", "r", wire.RunCreate(pipeline="train"))
    world.do(runs.finish, "theirs", "r", wire.RunFinish(state="succeeded"))
    work(world)
    assert world.runs() == []


def test_what_a_full_queue_does_not_take_comes_again_and_the_rest_goes_on(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(world, "evaluate", window_s=3600, max_batch=10)
    for number in range(2):
        begin(world, f"r{number}", "train")
        world.do(runs.finish, PROJECT, f"r{number}", wire.RunFinish(state="succeeded"))
    with monkeypatch.context() as patch:
        patch.setattr(intake, "MAX_WAITING", 1)
        fanout.work(world.database, world.matcher)
    assert world.trigger("evaluate").waiting == 0
    world.clock.advance(fanout.LATER_S)
    work(world)
    assert world.trigger("evaluate").waiting == 2
