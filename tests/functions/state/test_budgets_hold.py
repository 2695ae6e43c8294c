"""Budgets of runs and projects: what stops, what waits, what is told, and that a strict one is never exceeded (I10)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from trainlet.core import wire
from trainlet.core.budgets import Budget
from trainlet.core.clocks import ManualClock
from trainlet.core.errors import NotFoundError, UserError
from trainlet_functions.billing import budgets, reports, spending
from trainlet_functions.metering import rebuild
from trainlet_functions.state import attempts, funds, runs, schema, supervisor
from trainlet_functions.state.database import Capacity, Database

A100 = "A100-80GB"
DAY_S = 86_400


def price(world: Any, sku: str = A100) -> int:
    with world.database.read() as tx:
        return int(tx.prices.versions[-1].nano_per_second(sku))


def budget(world: Any, name: str = "b", **terms: Any) -> Any:
    with world.database.write() as tx:
        view = budgets.put(tx, name, Budget(**{"covers": "default", **terms}), "admin")
        funds.look(tx, name)
    return view


def standing(world: Any, name: str = "b", project: str | None = None) -> Any:
    with world.database.read() as tx:
        return budgets.get(tx, name, project)


@pytest.fixture
def gpus(world: Any) -> Any:
    world.install(("GPU-0", A100), ("GPU-1", A100))
    world.deploy("gpu", ((A100, 1),), grace_s=10)
    return world


def test_a_run_that_has_spent_its_budget_stops_and_prints_the_line_that_resumes_it(gpus: Any, used: Any) -> None:
    most = 10 * price(gpus)
    gpus.do(runs.create, "default", "run", wire.RunCreate(pipeline="p", graph={}, budget_nano=most))
    gpus.running("run.t", "gpu")
    assert gpus.beat("run.t", usage=[used(gpus, "run.t", 9.9)]).directive == "continue"
    reply = gpus.beat("run.t", usage=[used(gpus, "run.t", 10.1)])
    assert (reply.directive, reply.code) == ("stop", "budget")
    error = gpus.finish("run.t", outcome="canceled", usage=[used(gpus, "run.t", 11, kind="close")]).error
    assert (error.kind, error.type) == ("budget", "BudgetReached")
    assert "the budget of the run is spent" in error.message
    assert f'trainlet resume run --budget "{most * 2 / 1e9:.4f}'.rstrip("0") in error.hint


def test_a_resumed_run_whose_budget_is_still_spent_ends_at_once(gpus: Any, used: Any) -> None:
    gpus.do(runs.create, "default", "run", wire.RunCreate(pipeline="p", graph={}, budget_nano=1))
    gpus.running("run.t", "gpu")
    gpus.finish("run.t", outcome="preempted", usage=[used(gpus, "run.t", 5, kind="close")])
    gpus.do(runs.resume, "default", "run", wire.Resume())
    assert (gpus.task("run.t").state, gpus.task("run.t").error.type) == ("canceled", "BudgetReached")
    gpus.do(runs.resume, "default", "run", wire.Resume(budget_nano=10**12))
    assert gpus.task("run.t").state == "dispatched"


def test_a_spent_project_stops_what_runs_and_lets_the_rest_wait_for_its_next_period(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=10 * price(gpus), per="day")
    gpus.running("a.t", "gpu", run="a")
    assert gpus.beat("a.t", usage=[used(gpus, "a.t", 12)]).code == "budget"
    gpus.finish("a.t", outcome="canceled", usage=[used(gpus, "a.t", 13, kind="close")])
    assert gpus.task("a.t").error.type == "BudgetReached"
    assert "trainlet resume a" in gpus.task("a.t").error.hint
    waiting = gpus.create("b.t", "gpu", run="b")
    assert waiting.state == "queued"
    assert waiting.reason.startswith("waiting: the budget 'b' of default is spent (") and "until 2" in waiting.reason
    gpus.clock.advance(DAY_S)
    gpus.supervisor.tick()
    assert gpus.task("b.t").state == "dispatched"
    assert standing(gpus).used == 0


def test_a_total_budget_has_no_next_period_so_what_comes_later_ends(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=1, per="total")
    gpus.running("a.t", "gpu", run="a")
    gpus.finish("a.t", usage=[used(gpus, "a.t", 3, kind="close")])
    assert gpus.create("b.t", "gpu", run="b").state == "canceled"
    assert gpus.create("c.t", run="c").state == "dispatched", "a CPU step uses nothing of it"


def test_what_waits_goes_on_when_the_budget_is_raised_or_removed(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=1)
    gpus.running("a.t", "gpu", run="a")
    gpus.finish("a.t", usage=[used(gpus, "a.t", 3, kind="close")])
    assert gpus.create("b.t", "gpu", run="b").state == "queued"
    budget(gpus, money_nano=10**12)
    gpus.supervisor.tick()
    assert gpus.task("b.t").state == "dispatched"
    with gpus.database.write() as tx:
        budgets.delete(tx, "b")
    with pytest.raises(NotFoundError, match="There are: none"):
        standing(gpus)


def test_a_quota_of_gpu_hours_binds_its_sku_only_and_leaves_the_alternative(world: Any, used: Any) -> None:
    world.install(("GPU-0", A100), ("GPU-1", "T4"))
    world.deploy("gpu", ((A100, 1), ("T4", 1)))
    budget(world, gpu_seconds=60, sku="A100")
    world.running("a.t", "gpu", run="a")
    assert world.beat("a.t", usage=[used(world, "a.t", 59.9)]).directive == "continue"
    assert world.beat("a.t", usage=[used(world, "a.t", 60.0)]).code == "budget"
    world.finish("a.t", outcome="canceled", usage=[used(world, "a.t", 61, kind="close")])
    assert [device.sku for device in world.running("b.t", "gpu", run="b").devices] == ["T4"]
    assert (standing(world).used, standing(world).unit) == (61, "GPU-seconds")


def test_a_quota_does_not_stop_what_runs_on_another_device(world: Any, used: Any) -> None:
    world.install(("GPU-0", A100), ("GPU-1", "T4"))
    world.deploy("big", ((A100, 1),))
    world.deploy("small", (("T4", 1),))
    budget(world, gpu_seconds=10, sku=A100)
    world.running("a.big", "big", run="a")
    world.running("b.small", "small", run="b")
    assert world.beat("a.big", usage=[used(world, "a.big", 11)]).code == "budget"
    assert world.beat("b.small", usage=[used(world, "b.small", 99)]).directive == "continue"


def test_a_budget_that_warns_tells_once_and_stops_nothing(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=10 * price(gpus), action="warn", warn_at=(50, 80))
    gpus.running("a.t", "gpu", run="a")
    for held in (4, 6, 7, 8, 9, 11, 12):
        assert gpus.beat("a.t", usage=[used(gpus, "a.t", held)]).directive == "continue"
    with gpus.database.read() as tx:
        lines = [row.reason for row in tx.all(schema.timeline.select().order_by(schema.timeline.c.id))]
        told = [row.type for row in tx.all(schema.outbox.select()) if row.type.startswith("dev.trainlet.budget.")]
    assert [line for line in lines if "%" in line] == [f"{one} % of the budget 'b' is used" for one in (50, 80, 100)]
    assert told == ["dev.trainlet.budget.warned", "dev.trainlet.budget.warned", "dev.trainlet.budget.spent"]
    assert (standing(gpus).state, standing(gpus).percent) == ("spent", 120.0)


def test_projects_nest_by_their_names_and_nobody_sees_the_figures_of_others(gpus: Any, used: Any) -> None:
    budget(gpus, "all", covers="*", money_nano=10 * price(gpus))
    budget(gpus, "family", covers="def*", money_nano=10**15)
    budget(gpus, "foreign", covers="other", money_nano=10**15)
    gpus.running("a.t", "gpu", run="a")
    reply = gpus.beat("a.t", usage=[used(gpus, "a.t", 11)])
    assert reply.code == "budget" and "(" not in reply.reason
    with gpus.database.read() as tx:
        mine = {view.name: view.used for view in budgets.all_(tx, "default")}
    assert mine == {"all": None, "family": None}
    assert standing(gpus, "family").used == 11 * price(gpus)
    with pytest.raises(NotFoundError):
        standing(gpus, "foreign", "default")


def test_a_month_is_a_month_of_the_calendar_in_utc(world: Any) -> None:
    limit = budgets.Limit("b", Budget(covers="p", money_nano=1))
    for year, month, length in ((2024, 2, 29), (2026, 2, 28), (2026, 12, 31), (2100, 2, 28), (2000, 2, 29)):
        inside = int(datetime(year, month, length, 23, 59, 59, tzinfo=UTC).timestamp()) * 10**9
        days = limit.days(inside)
        assert days is not None and days[1] - days[0] == length
        assert limit.days(inside + 10**9)[0] == days[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"money_nano": 1, "currency": "EUR"}, "Prices are in USD"),
        ({"money_nano": 1, "sku": "A1000"}, "no device that was ever priced"),
    ],
)
def test_a_budget_that_could_never_bind_is_refused(world: Any, terms: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        budget(world, **terms)


def test_a_strict_budget_sets_time_aside_before_an_attempt_may_start(gpus: Any) -> None:
    quantum = 15 + 10 + 4
    budget(gpus, money_nano=price(gpus) * (quantum + 5), strict=True)
    assert gpus.create("a.t", "gpu", run="a").state == "dispatched"
    waiting = gpus.create("b.t", "gpu", run="b")
    assert (waiting.state, waiting.reason) == (
        "queued",
        f"waiting: the budget 'b' cannot set {quantum} s of this task aside",
    )
    assert standing(gpus).held == price(gpus) * quantum
    gpus.claim("a.t", 1, function="gpu")
    gpus.finish("a.t")
    assert gpus.task("b.t").state == "dispatched"


def test_a_strict_budget_that_never_fits_a_quantum_ends_the_task(gpus: Any) -> None:
    budget(gpus, money_nano=price(gpus), strict=True)
    view = gpus.create("a.t", "gpu", run="a")
    assert (view.state, view.error.kind) == ("canceled", "budget")


def test_a_strict_budget_stops_while_there_is_time_left_to_save(gpus: Any, used: Any) -> None:
    quantum = 29
    budget(gpus, money_nano=price(gpus) * 60, strict=True)
    gpus.running("a.t", "gpu", run="a")
    told = None
    for held in range(2, 40, 2):
        reply = gpus.beat("a.t", usage=[used(gpus, "a.t", held)])
        if reply.directive == "stop":
            told = held
            break
    assert told is not None and 60 - told >= quantum - 3
    assert "cannot pay for more than" in reply.reason


def test_time_that_was_not_set_aside_is_not_billed(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=price(gpus) * 40, strict=True)
    gpus.running("a.t", "gpu", run="a")
    gpus.beat("a.t", usage=[used(gpus, "a.t", 5)])
    reply = gpus.beat("a.t", usage=[used(gpus, "a.t", 500)])  # it could not reach the API for so long
    assert reply.code == "budget"
    gpus.finish("a.t", outcome="canceled", usage=[used(gpus, "a.t", 501, kind="close")])
    with gpus.database.write() as tx:
        before = reports.usage(tx, "default").model_dump()
        rebuild(tx)
        assert reports.usage(tx, "default").model_dump() == before
    assert before["cost_nano"] == price(gpus) * 34 == standing(gpus).used


def test_what_was_set_aside_for_attempts_that_ended_is_forgotten_after_a_while(gpus: Any, used: Any) -> None:
    budget(gpus, money_nano=price(gpus) * 4000, strict=True)
    for name in ("a", "b"):
        gpus.running(f"{name}.t", "gpu", run=name)
    gpus.finish("b.t", usage=[used(gpus, "b.t", 5, kind="close")])
    gpus.do(supervisor.forget_holds)
    assert held_for(gpus) == {"a.t", "b.t"}, "late usage of it may come yet"
    gpus.clock.advance(supervisor.FORGET_S + 1)
    gpus.do(supervisor.forget_holds)
    assert held_for(gpus) == {"a.t"}
    assert standing(gpus).held > 0


def held_for(world: Any) -> set[str]:
    with world.database.read() as tx:
        return {row.task for row in tx.all(schema.holds.select())}


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["beat", "silent", "finish", "lose", "create"]), st.integers(0, 3), st.floats(0.1, 120)),
    max_size=25,
)


@hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(actions=ACTIONS, seconds=st.integers(30, 400), in_money=st.booleans())
def test_I10_a_strict_budget_is_never_exceeded(
    world: Any, used: Any, tmp_path_factory: Any, actions: Any, seconds: int, in_money: bool
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('strict') / 'state.db'}"
    clock = ManualClock()
    database = Database(url, clock, capacity=Capacity(owns_devices=True, cpu_slots=4))
    database.migrate()
    own = type(world)(database, clock)
    own.install(("GPU-0", A100), ("GPU-1", A100))
    own.deploy("gpu", ((A100, 1),), grace_s=5)
    most = seconds * price(own) if in_money else seconds
    budget(own, **{"money_nano" if in_money else "gpu_seconds": most}, strict=True, per="total")
    began: dict[str, int] = {}
    for number, (action, which, pause) in enumerate(actions):
        running = [key for key in began if own.task(key).state == "running"]
        key = running[which % len(running)] if running else None
        clock.advance(pause)
        if action == "create":
            view = own.create(f"r{number}.t", "gpu", run=f"r{number}")
            if view.state == "dispatched":
                own.claim(view.key, view.epoch, function="gpu", worker=f"w{number}")
                began[view.key] = clock.boot_ns()
        elif action == "lose" and key:
            own.do(attempts.lost, key, own.task(key).epoch, "gone")
        elif key and action != "silent":
            epoch = own.task(key).epoch
            held = (clock.boot_ns() - began[key]) / 1e9
            worker = own.claims[key, epoch].task.attempts[-1].worker
            if action == "beat":
                own.beat(key, epoch, worker=worker, usage=[used(own, key, held, epoch)])
            else:
                own.finish(key, epoch, "canceled", worker=worker, usage=[used(own, key, held, epoch, "close")])
        view = standing(own)
        assert view.used + view.held <= most
    with database.write() as tx:
        report, view = reports.usage(tx, "default"), budgets.get(tx, "b")
        assert view.used == (report.cost_nano if in_money else report.gpu_seconds)
        before = [tuple(row) for row in tx.all(schema.spending.select())]
        spending.recount(tx)
        assert [tuple(row) for row in tx.all(schema.spending.select())] == before
    database.close()
