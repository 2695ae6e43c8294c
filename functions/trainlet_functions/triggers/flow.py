"""Flow control: what of a trigger's waiting events becomes a run now, and in words why the rest waits.

A trigger is looked at when its time has come (`due_ns`): an event matched, a window closed, a run of it ended, a period
began. Each look is one transaction, and what it decides holds for any number of replicas, because writes are serial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.models import sha256_hex
from trainlet.core.triggers import Flow, Schedule, Subscription
from trainlet_functions.billing import budgets
from trainlet_functions.state import functions, runs, schema
from trainlet_functions.state.database import Transaction
from trainlet_functions.triggers import firing, intake, tables

_TABLE, _MATCHES, _FIRINGS, _RUNS = tables.triggers, tables.matches, tables.firings, schema.runs
_AGAIN_S = 60.0  # when a budget is looked at again: whoever owns it may raise it at any time
_AT_ONCE = 20  # runs that one look starts; a longer queue is looked at again at once


@dataclass(frozen=True, slots=True)
class Wait:
    """Why nothing starts, and when to look again; None: when something changes."""

    reason: str
    until_ns: int | None = None


def due(tx: Transaction, limit: int = 50) -> list[sa.Row[Any]]:
    """Return triggers that it is time to look at, the longest overdue first."""
    return tx.all(sa.select(_TABLE).where(_TABLE.c.due_ns <= tx.now_ns).order_by(_TABLE.c.due_ns).limit(limit))


def spec_of(row: sa.Row[Any]) -> Subscription | Schedule:
    """Return what a stored trigger is."""
    return (Subscription if row.kind == "event" else Schedule).model_validate_json(row.spec)


def advance(tx: Transaction, project: str, name: str, most: int = _AT_ONCE) -> int:
    """Start what can start of a trigger, at most so many at once; returns how many runs."""
    this = (_TABLE.c.project == project) & (_TABLE.c.name == name)
    row = tx.one(sa.select(_TABLE).where(this))
    if row is None:
        return 0
    if row.state == "paused":
        tx.run(_TABLE.update().where(this).values(due_ns=None))
        return 0
    spec = spec_of(row)
    started, more = 0, True
    for _ in range(most):
        held = firing.held(tx, project, name, spec.flow.max_batch + 1)
        if not held:
            more = False
            break
        held, more = held[: spec.flow.max_batch], len(held) > spec.flow.max_batch
        wait = _wait(tx, row, spec, held)
        if isinstance(wait, Wait):
            tx.run(_TABLE.update().where(this).values(due_ns=wait.until_ns, reason=wait.reason))
            return started
        started += firing.fire(tx, row, spec, held, budget_nano=wait)
        if not more:
            break
    reason = row.reason if row.reason.startswith(intake.POLLING) else ""
    rest = {"due_ns": tx.now_ns} if more else {"due_ns": None, "reason": reason, "waiting": 0}
    tx.run(_TABLE.update().where(this).values(rest))
    return started


def settle(tx: Transaction) -> int:
    """Take note of triggered runs that have ended; what waited for them is looked at again. Returns how many."""
    rows = tx.all(ended(tx))
    for row in rows:
        this = (_TABLE.c.project == row.project) & (_TABLE.c.name == row.trigger)
        cost = firing.cost_nano(tx, row.project, row.run_id, row.labels)
        part = firing.part_of(row.labels)
        if part is not None:
            runs.close(tx, row.project, part, row.state)
        values = {"ended_ns": tx.now_ns, "outcome": row.state, "cost_nano": cost}
        tx.run(_FIRINGS.update().where(_FIRINGS.c.run_id == row.run_id).values(values))
        trigger = tx.one(sa.select(_TABLE).where(this))
        if trigger is None:
            continue
        failures = {"failed": trigger.failures + 1, "succeeded": 0}.get(row.state, trigger.failures)
        breaker = spec_of(trigger).flow.breaker
        rest_ns = trigger.rest_until_ns if failures else None
        if row.state == "failed" and breaker is not None and failures >= breaker.failures:
            rest_ns = tx.now_ns + round(breaker.rest_s * 1e9)
        look_ns = tx.now_ns if trigger.waiting else trigger.due_ns
        tx.run(_TABLE.update().where(this).values(failures=failures, rest_until_ns=rest_ns, due_ns=look_ns))
    return len(rows)


def ended(tx: Transaction) -> sa.Select[Any]:
    """Build the query for triggered runs whose end was not noted yet."""
    over = _FIRINGS.c.ended_ns.is_(None) & (_RUNS.c.state != "running")
    joined = _FIRINGS.join(_RUNS, _RUNS.c.id == _FIRINGS.c.run_id)
    columns = (_FIRINGS.c.run_id, _FIRINGS.c.project, _FIRINGS.c.trigger, _RUNS.c.state, _RUNS.c.labels)
    return sa.select(*columns).select_from(joined).where(over).order_by(_FIRINGS.c.number)


def _wait(
    tx: Transaction, row: sa.Row[Any], spec: Subscription | Schedule, held: list[sa.Row[Any]]
) -> Wait | int | None:
    """Return why nothing starts now, or the budget that the next run gets (None: no limit)."""
    flow = spec.flow
    gathering = _gathering(tx, row, flow, held)
    if gathering is not None:
        return gathering
    running = open_runs(tx, row.project, row.name)
    checks: tuple[Callable[[], Wait | None], ...] = (
        lambda: _resting(tx, row, flow, running),
        lambda: _too_often(tx, row, flow),
        lambda: _beside(flow, running),
        lambda: _spent(tx, row.project, spec),
    )
    for check in checks:
        found = check()
        if found is not None:
            return found
    allowed = _allowance(tx, row, flow, running)
    if isinstance(allowed, Wait):
        return allowed
    if flow.concurrency == "replace":
        for run in running:
            runs.cancel(tx, row.project, run, f"replaced: newer events came for {row.name}")
    return allowed


def _gathering(tx: Transaction, row: sa.Row[Any], flow: Flow, held: list[sa.Row[Any]]) -> Wait | None:
    """Wait until a batch is full, its window is over, or nothing more comes."""
    ready_ns = held[0].matched_ns
    if len(held) < flow.max_batch and (flow.window_s or flow.debounce_s):
        first, last = held[0].matched_ns, held[-1].matched_ns
        ends = [first + round(flow.window_s * 1e9)] if flow.window_s else []
        ends += [last + round(flow.debounce_s * 1e9)] if flow.debounce_s else []
        ready_ns = min(ends)
    jitter_ns = _jitter_ns(row, flow, held[0].event)
    if ready_ns + jitter_ns <= tx.now_ns:
        return None
    what = intake.COLLECTING if ready_ns > tx.now_ns else "jitter"
    return Wait(f"{what}, until {rfc3339(ready_ns + jitter_ns)}", ready_ns + jitter_ns)


def _jitter_ns(row: sa.Row[Any], flow: Flow, event: int) -> int:
    """Return a part of the jitter that is always the same for the same event."""
    if flow.jitter_s is None:
        return 0
    share = int(sha256_hex(f"{row.project}\0{row.name}\0{event}".encode())[:8], 16) / 2**32
    return round(flow.jitter_s * share * 1e9)


def _resting(tx: Transaction, row: sa.Row[Any], flow: Flow, running: list[str]) -> Wait | None:
    """Hold everything after repeated failures, and then let one run through as the trial."""
    if flow.breaker is None or row.failures < flow.breaker.failures:
        return None
    so_far = f"the last {row.failures} runs failed"
    if row.rest_until_ns is not None and row.rest_until_ns > tx.now_ns:
        return Wait(f"{so_far}; the next try is at {rfc3339(row.rest_until_ns)}", row.rest_until_ns)
    return Wait(f"{so_far}; {running[0]} is the trial") if running else None


def _too_often(tx: Transaction, row: sa.Row[Any], flow: Flow) -> Wait | None:
    if flow.rate is None:
        return None
    since_ns = tx.now_ns - round(flow.rate.per_s * 1e9)
    mine = (_FIRINGS.c.project == row.project) & (_FIRINGS.c.trigger == row.name) & (_FIRINGS.c.started_ns > since_ns)
    newest = sa.select(_FIRINGS.c.started_ns).where(mine).order_by(_FIRINGS.c.started_ns.desc()).limit(flow.rate.count)
    found = tx.all(newest)
    if len(found) < flow.rate.count:
        return None
    again_ns = found[-1].started_ns + round(flow.rate.per_s * 1e9)
    return Wait(f"rate limit: {flow.rate.count} runs in {flow.rate.per_s:g} s, until {rfc3339(again_ns)}", again_ns)


def _beside(flow: Flow, running: list[str]) -> Wait | None:
    if not running or flow.concurrency in ("allow", "replace"):
        return None
    return Wait(f"{running[0]} runs (concurrency={flow.concurrency})")


def _spent(tx: Transaction, project: str, spec: Subscription | Schedule) -> Wait | None:
    """Hold runs that need devices while a budget of the project is spent: they would only wait, or stop at once."""
    nodes = spec.program.graph.get("nodes", [])
    if not any(functions.spec(tx, project, node["function"], node["digest"]).resources.gpus for node in nodes):
        return None
    for limit in budgets.set_limits(tx):
        if not limit.binds(project) or limit.terms.action != "stop" or limit.terms.sku is not None:
            continue
        spent = budgets.used(tx, limit)
        if spent >= limit.most:
            return Wait(limit.words(spent, tx.now_ns), tx.now_ns + round(_AGAIN_S * 1e9))
    return None


def _allowance(tx: Transaction, row: sa.Row[Any], flow: Flow, running: list[str]) -> Wait | int | None:
    """Return what the next run may cost: its own limit, and what the period has left beside the runs that are open."""
    if flow.budget is None:
        return flow.run_budget_nano
    per_ns = round(flow.budget.per_s * 1e9)
    begin_ns = tx.now_ns // per_ns * per_ns
    mine = (_FIRINGS.c.project == row.project) & (_FIRINGS.c.trigger == row.name)
    done = sa.select(sa.func.sum(_FIRINGS.c.cost_nano)).where(mine & (_FIRINGS.c.started_ns >= begin_ns))
    spent = int(tx.conn.execute(done).scalar() or 0)
    if spent >= flow.budget.nano:
        text = f"the budget is spent ({spent / 1e9:.2f} of {flow.budget.nano / 1e9:.2f}), until {rfc3339(begin_ns + per_ns)}"
        return Wait(text, begin_ns + per_ns)
    table = sa.select(_RUNS.c.budget_nano).where(_RUNS.c.id.in_(running))
    reserved = sum(one.budget_nano or 0 for one in tx.all(table)) if running else 0
    left = flow.budget.nano - spent - reserved
    if left <= 0:
        return Wait(f"the budget may be spent by {', '.join(running[:3])}")
    return left if flow.run_budget_nano is None else min(left, flow.run_budget_nano)


def open_runs(tx: Transaction, project: str, name: str) -> list[str]:
    """Return the runs of a trigger that have not ended, the oldest first."""
    mine = (_FIRINGS.c.project == project) & (_FIRINGS.c.trigger == name) & _FIRINGS.c.ended_ns.is_(None)
    return [row.run_id for row in tx.all(sa.select(_FIRINGS.c.run_id).where(mine).order_by(_FIRINGS.c.number))]
