"""What is held back waits with its reason, and starts when it may; nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core import events
from trainlet.core.budgets import Budget
from trainlet.core.specs import Entry, FunctionSpec, GpuRequest, Resources
from trainlet.core.triggers import MAX_WAITING, Allowance, Breaker, Parameter, Program, Rate, Subscription
from trainlet_functions.billing import budgets
from trainlet_functions.state import functions, schema
from trainlet_functions.state.problems import TooManyWaiting
from trainlet_functions.triggers import intake, registry, tables

PROJECT = "default"


def waits(world: Any, name: str = "retrain") -> str:
    """Return why the trigger waits, or nothing."""
    view = world.trigger(name)
    assert (view.waiting > 0) == bool(view.reason)
    return str(view.reason)


def test_a_window_gathers_events_into_one_run_that_gets_them_all(world: Any) -> None:
    world.subscribe(many=True, window_s=60, max_batch=100)
    world.send("a", "b")
    world.work()
    assert world.runs() == [] and "collecting events, until" in waits(world)
    world.wait(50)
    world.send("c")
    world.wait(9)
    assert world.runs() == []
    world.wait(1)
    assert world.given() == [["a", "b", "c"]] and waits(world) == ""
    world.send("d")
    world.wait(59)
    assert len(world.runs()) == 1, "a new window begins with the next event"
    world.wait(1)
    assert world.given()[1] == ["d"]


def test_a_full_batch_does_not_wait_for_the_window(world: Any) -> None:
    world.subscribe(many=True, window_s=3600, max_batch=3)
    world.send(*"abcdefgh")
    world.work()
    assert world.given() == [["a", "b", "c"], ["d", "e", "f"]]
    assert world.trigger().waiting == 2
    world.wait(3600)
    assert world.given()[2] == ["g", "h"]


def test_a_debounce_waits_until_nothing_more_comes_but_not_past_the_window(world: Any) -> None:
    world.subscribe(many=True, debounce_s=10, window_s=25, max_batch=100)
    for uri in "abc":
        world.send(uri)
        world.wait(8)
    assert world.runs() == []
    world.wait(1)
    assert world.given() == [["a", "b", "c"]], "the window ended 25 s after the first"
    world.send("d")
    world.wait(10)
    assert world.given()[1] == ["d"]


@pytest.mark.parametrize("concurrency", ["forbid", "queue"])
def test_one_run_at_a_time_and_the_others_wait_for_it(world: Any, concurrency: str) -> None:
    world.subscribe(concurrency=concurrency)
    world.send("a", "b", "c")
    world.work()
    (first,) = world.runs()
    assert waits(world) == f"{first.id} runs (concurrency={concurrency})"
    world.end(first.id)
    assert world.given() == ["a", "b"]
    world.end(world.runs()[1].id, "failed")
    assert world.given() == ["a", "b", "c"]


def test_replace_cancels_what_runs_for_the_newest(world: Any) -> None:
    world.subscribe(concurrency="replace")
    world.send("a")
    world.work()
    world.send("b")
    world.work()
    first, second = world.runs()
    assert (first.state, second.state) == ("canceled", "running")
    assert "replaced" in first.reason


def test_a_rate_limit_lets_the_rest_through_later(world: Any) -> None:
    world.subscribe(rate=Rate(count=2, per_s=60))
    world.send("a")
    world.work()
    world.wait(10)
    world.send("b", "c", "d")
    world.work()
    assert world.given() == ["a", "b"] and "rate limit: 2 runs in 60 s" in waits(world)
    world.wait(50)
    assert world.given() == ["a", "b", "c"]
    world.wait(10)
    assert world.given() == ["a", "b", "c", "d"]


def test_jitter_delays_by_the_same_part_each_time_it_is_looked_at(world: Any) -> None:
    world.subscribe(jitter_s=60)
    world.send("a")
    world.work()
    assert "jitter, until" in waits(world)
    before = world.trigger().next_at
    world.wait(0.001)
    assert world.trigger().next_at == before
    world.wait(60)
    assert world.given() == ["a"]


def test_after_repeated_failures_nothing_starts_and_then_one_run_is_the_trial(world: Any) -> None:
    world.subscribe(breaker=Breaker(failures=2, rest_s=600))
    for uri in "ab":
        world.send(uri)
        world.work()
        world.end(world.runs()[-1].id, "failed")
    world.send("c", "d")
    world.work()
    assert world.given() == ["a", "b"] and "the last 2 runs failed; the next try is at" in waits(world)
    world.wait(600)
    assert world.given() == ["a", "b", "c"], "one trial"
    assert "is the trial" in waits(world)
    world.end(world.runs()[-1].id, "failed")
    assert "the last 3 runs failed" in waits(world)
    world.wait(600)
    world.end(world.runs()[-1].id, "succeeded")
    assert world.given() == ["a", "b", "c", "d"]
    assert world.trigger().failures_in_a_row == 0
    world.send("e", "f")
    world.work()
    assert len(world.runs()) == 6


def test_resuming_closes_the_breaker_at_once(world: Any) -> None:
    world.subscribe(breaker=Breaker(failures=1, rest_s=600))
    world.send("a", "b")
    world.work()
    for run in world.runs():
        world.end(run.id, "failed")
    world.send("c")
    world.work()
    assert len(world.runs()) == 2
    world.do(registry.resume, PROJECT, "retrain")
    world.work()
    assert world.given() == ["a", "b", "c"]


def test_a_pause_holds_everything_until_it_is_resumed(world: Any) -> None:
    world.subscribe()
    world.do(registry.pause, PROJECT, "retrain", "the cluster moves")
    (event,) = world.send("a")
    world.wait(1e6)
    assert world.matches(event) == [("held", "the cluster moves")]
    world.do(registry.resume, PROJECT, "retrain")
    world.work()
    assert world.given() == ["a"] and waits(world) == ""


def test_a_loop_of_events_and_runs_stops_at_the_guard(world: Any) -> None:
    world.subscribe()
    (caused,) = world.send("a", trainletchain="other,retrain")
    world.send("b", trainletchain="other")
    world.work()
    ((state, reason),) = world.matches(caused)
    assert state == "skipped" and "loop guard" in reason and "other -> retrain" in reason
    assert world.given() == ["b"]
    with world.database.read() as tx:
        assert [row.chain for row in tx.all(tables.firings.select())] == ["other,retrain"]


def test_a_loop_that_is_allowed_goes_round_as_often_as_was_said(world: Any) -> None:
    world.subscribe(max_repeats=1)
    world.send("a", trainletchain="retrain")
    (stopped,) = world.send("b", trainletchain="retrain,retrain")
    world.work()
    assert world.given() == ["a"]
    assert world.matches(stopped)[0][0] == "skipped"


def test_a_budget_holds_what_it_cannot_pay_for_until_the_next_period(world: Any) -> None:
    day = 24 * 3600
    world.clock.advance(day - world.clock.wall_ns() / 1e9 % day)
    world.subscribe(budget=Allowance(nano=10_000_000_000, per_s=day), run_budget_nano=6_000_000_000)
    world.send("a", "b", "c")
    world.work()
    assert [run.budget_nano for run in world.runs()] == [6_000_000_000, 4_000_000_000]
    assert "the budget may be spent by" in waits(world)
    for run in world.runs():
        world.end(run.id)
    assert len(world.runs()) == 3, "they cost nothing in the end"
    with world.database.write() as tx:
        tx.run(tables.firings.update().values(cost_nano=5_000_000_000))
    world.end(world.runs()[2].id)
    with world.database.write() as tx:
        tx.run(tables.firings.update().values(cost_nano=5_000_000_000))
    world.send("d")
    world.work()
    assert "the budget is spent (15.00 of 10.00)" in waits(world)
    world.wait(day)
    assert world.given() == ["a", "b", "c", "d"]


def test_a_storm_of_events_is_refused_before_the_queue_is_endless_and_nothing_of_it_is_kept(world: Any) -> None:
    world.subscribe()
    world.do(registry.pause, PROJECT, "retrain", "storm")
    with world.database.write() as tx:
        tx.run(tables.triggers.update().values(waiting=MAX_WAITING - 1))
    storm = [events.make("com.example.created", "/storm", str(number), {"uri": "x"}) for number in range(2)]
    with pytest.raises(TooManyWaiting, match="wait for retrain already"):
        world.do(intake.take, PROJECT, storm, world.matcher)
    with world.database.read() as tx:
        assert tx.all(tables.events.select()) == []
    world.do(intake.take, PROJECT, storm[:1], world.matcher)


def test_a_removed_trigger_leaves_what_waited_visible(world: Any) -> None:
    world.subscribe(window_s=60, many=True, max_batch=10)
    (event,) = world.send("a")
    world.do(registry.delete, PROJECT, "retrain", "event")
    world.wait(100)
    assert world.matches(event) == [("skipped", "its trigger was removed")]


def test_a_new_definition_takes_over_what_waits(world: Any) -> None:
    world.subscribe(window_s=3600, many=True, max_batch=10)
    world.send("a", "b")
    world.work()
    world.subscribe()
    world.work()
    assert world.given() == ["a", "b"]


def test_a_spent_budget_of_the_project_holds_runs_that_need_devices_until_it_is_raised(world: Any) -> None:
    gpu = FunctionSpec(
        name="step",
        bundle="1" * 64,
        entry=Entry(module="m", qualname="step"),
        resources=Resources(gpus=(GpuRequest(sku="A100-80GB", count=1),)),
    )
    world.do(functions.register, PROJECT, gpu)
    world.subscribe("cpu")
    graph = {**world.program().graph}
    graph["nodes"] = [{**graph["nodes"][0], "digest": gpu.digest()}]
    spec = Subscription(
        program=Program(pipeline="gpu", graph=graph),
        filters=[{"exact": {"type": "com.example.created"}}],
        params={"data": Parameter(path="$.data.uri")},
    )
    world.do(registry.put, PROJECT, "gpu", spec)
    today = world.clock.wall_ns() // (24 * 3600 * 10**9)
    spent = {"run_id": "", "sku": "A100-80GB", "parts": 1, "cost_nano": 5_000_000_000}
    world.do(lambda tx: tx.insert(schema.spending, project=PROJECT, day=today, **spent))

    def budget(dollars: int) -> None:
        terms = Budget(covers=PROJECT, money_nano=dollars * 10**9, per="month")
        world.do(budgets.put, "team", terms, "admin")

    budget(5)
    world.send("a")
    world.work()
    assert [run.pipeline for run in world.runs()] == ["retrain"], "what needs no device costs nothing"
    assert "the budget 'team' of default is spent (5.00" in waits(world, "gpu")
    budget(6)
    world.wait(60)
    assert [run.pipeline for run in world.runs()] == ["retrain", "gpu"]
