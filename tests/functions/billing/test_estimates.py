"""What is said before a run is what its lease is billed afterwards, to the last digit."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.core.errors import UserError
from trainlet.core.estimates import Estimate, EstimateRequest, EstimateStep
from trainlet.core.specs import GpuRequest
from trainlet_functions.billing import estimates, reports
from trainlet_functions.state import schema

L4 = (GpuRequest(sku="L4", count=1),)
PARTS = st.lists(
    st.tuples(st.sampled_from(("pull", "setup", "run", "idle", "drain")), st.integers(0, 9000)), min_size=1, max_size=4
)


def ask(ledger: Any, *steps: EstimateStep, project: str = "p", **fields: Any) -> Estimate:
    with ledger.database.read() as tx:
        return estimates.estimate(tx, project, EstimateRequest(steps=steps, **fields))


def step(seconds: int | None = None, **fields: Any) -> EstimateStep:
    phases = () if seconds is None else (("run", seconds),)
    return EstimateStep(**{"node": "train", "function": "train", "gpus": L4, "phases": phases, **fields})


def ended(ledger: Any, lease: str) -> None:
    """Let the task of a lease have succeeded."""
    texts = dict.fromkeys(("args", "labels", "body_hash", "reason", "metrics", "checkpoints", "lane", "digest"), "{}")
    numbers = dict.fromkeys(("version", "failures", "losses", "not_before_ns", "announced_ns", "announcements"), 0)
    with ledger.database.write() as tx:
        named = {"key": f"run-{lease}.train", "project": "p", "run_id": f"run-{lease}", "node": "train"}
        when = {"created_ns": tx.now_ns, "updated_ns": tx.now_ns}
        what = {"function": "train", "state": "succeeded", "epoch": 1, "gpu": True}
        tx.insert(schema.tasks, **named, **when, **what, **texts, **numbers)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=PARTS, begin=st.integers(0, 20_000), count=st.integers(1, 3), discount=st.integers(0, 100))
def test_I13_an_estimate_is_what_rating_charges_for_the_same_lease(
    ledger: Any, price: Callable[..., Any], parts: Any, begin: int, count: int, discount: int
) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9) + 40_000 + begin
    known = len(ledger_versions(ledger))
    changed = price(f"p{known}", begin_s + 1000, L4=f"{3 + known / 7:.4f}")
    ledger.price(changed.model_copy(update={"discounts": {"p": {"*": Decimal(discount)}}}))
    said = ask(ledger, step(gpus=(GpuRequest(sku="L4", count=count),), phases=tuple(parts)), start_s=begin_s)
    marks, held = [], 0
    for phase, seconds in parts:
        marks.append((phase, held * 10**9))
        held += seconds
    for index in range(count):
        ledger.use("p", f"{known}.{index}", begin_s, held, phases=tuple(marks), run_id=f"r{known}")
    with ledger.database.read() as tx:
        billed = reports.usage(tx, "p", run_id=f"r{known}")
    assert (said.cost_nano, said.gpu_seconds, said.complete) == (billed.cost_nano, billed.gpu_seconds, True)


def ledger_versions(ledger: Any) -> Any:
    with ledger.database.read() as tx:
        return tx.prices.versions


def test_without_a_duration_it_is_the_median_of_the_last_tasks_with_all_their_attempts(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    for index, held in enumerate((100, 900, 300)):
        phases = (("setup", 0), ("run", 10 * 10**9))
        ledger.use("p", f"t{index}", begin_s + 1000 * index, held, phases=phases)
        ended(ledger, f"t{index}")
    again = {"task": "run-t2.train", "epoch": 2, "run_id": "run-t2"}
    ledger.use("p", "t2.2", begin_s + 5000, 50, **again)
    ledger.use("p", "unended", begin_s + 6000, 5)
    row = ask(ledger, step()).rows[0]
    assert (row.seconds, row.basis, row.seen, row.cost_nano) == (350, "history", 3, 350 * 10**6)
    assert ask(ledger, step(function="other")).rows[0].basis == "unknown"
    assert ask(ledger, step(), project="q").rows[0].cost_nano is None


def test_the_most_is_that_of_the_dearest_alternative_and_timeouts(ledger: Any, price: Callable[..., Any]) -> None:
    ledger.price(price("v2", int(ledger.clock.wall_ns() // 10**9) - 5, L4="3.60", T4="7.20"))
    both = (*L4, GpuRequest(sku="T4", count=2))
    said = ask(ledger, step(60, gpus=both, most_s=100, tasks=3))
    assert (said.cost_nano, said.most_nano) == (60 * 3 * 10**6, 100 * 2 * 3 * 2 * 10**6)
    assert ask(ledger, step(60, most_s=100), step(60)).most_nano is None


def test_what_is_not_known_is_said_and_never_guessed(ledger: Any) -> None:
    unpriced = step(60, gpus=(GpuRequest(sku="Abacus-9", count=1),))
    said = ask(ledger, unpriced, step(60), step(None, function="new"), step(60, tasks=None), step(gpus=()))
    assert said.unpriced_skus == ["Abacus-9"] and not said.complete
    assert [row.cost_nano for row in said.rows] == [None, 60 * 10**6, None, 60 * 10**6, 0]
    assert [row.each for row in said.rows] == [False, False, False, True, False]
    assert said.cost_nano == 120 * 10**6


def test_a_phase_that_there_is_not_is_refused(ledger: Any) -> None:
    with pytest.raises(UserError, match=r"steps\.train: 'rum' is no phase. Did you mean 'run'"):
        ask(ledger, step(phases=(("rum", 5),)))
