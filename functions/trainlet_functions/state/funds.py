"""Funds: what may start, what must stop, and what is set aside, so that budgets hold.

A budget that is spent stops the attempts that use it after a checkpoint, and what waits for it waits for its next period,
or ends where there is none. A strict budget is never exceeded: an attempt is dispatched only when a quantum of its time
can be set aside, every heartbeat sets the next one aside before the last is used up, and time that was not set aside is
not billed. A quantum is long enough to hear of the stop and to save a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa

from trainlet.core.bills import FULL_SHARE
from trainlet.core.budgets import amount
from trainlet.core.specs import FunctionSpec, GpuRequest
from trainlet.core.wire import Device
from trainlet_functions import metering
from trainlet_functions.billing import budgets
from trainlet_functions.billing.budgets import Limit
from trainlet_functions.billing.prices import PHASES
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import functions, outbox, schema, stops, transitions
from trainlet_functions.state.database import Transaction, loads

ENDED = ""
_TASKS, _ATTEMPTS, _HOLDS, _NOTES = schema.tasks, schema.attempts, schema.holds, schema.budget_notes
_HELD_FOR = sa.select(_HOLDS).where(
    (_HOLDS.c.task == sa.bindparam("this_task")) & (_HOLDS.c.epoch == sa.bindparam("this_epoch"))
)


def settle(tx: Transaction, touched: Collection[tuple[str, str]]) -> bool:
    """Look at every limit of these (project, run): tell what was reached, stop what has spent it. Returns whether any is."""
    seen: dict[tuple[str, str], Limit] = {}
    for project, run_id in touched:
        for limit in budgets.limits(tx, project, run_id):
            seen[limit.name, limit.run_id] = limit
    for limit in seen.values():
        spent = budgets.used(tx, limit)
        marks = budgets.passed(limit, spent)
        if marks:
            _tell(tx, limit, marks, spent)
        if spent >= limit.most and limit.terms.action == "stop":
            _stop(tx, limit, spent)
    return bool(seen)


def look(tx: Transaction, name: str) -> None:
    """Hold a budget that was just set against what was used before."""
    limit = budgets.find(tx, name)
    if limit is not None:
        spent = budgets.used(tx, limit)
        if spent >= limit.most and limit.terms.action == "stop":
            _stop(tx, limit, spent)


def choose(
    tx: Transaction, task: sa.Row[Any], spec: FunctionSpec, bound: Iterable[Limit]
) -> tuple[GpuRequest, ...] | str:
    """Return the alternatives of a task that the limits which bind it leave, or in words why it waits.

    A limit without a next period, or one that a quantum can never fit, leaves nothing to wait for: the task ends, with
    what makes it go on, and the reason is ENDED.
    """
    left = list(spec.resources.gpus)
    for limit in bound:
        if limit.terms.action != "stop":
            continue
        spent = budgets.used(tx, limit)
        aside = budgets.held(tx, limit.name) if limit.terms.strict else 0
        needs = {wanted: _need(tx, limit, task.project, spec, wanted) for wanted in left}
        payable = [wanted for wanted in left if not needs[wanted] or spent + aside + needs[wanted] <= limit.most]
        if payable:
            left = payable
            continue
        reason = limit.words(spent, tx.now_ns)
        if spent < limit.most:
            reason = f"the budget {limit.name!r} cannot set {_quantum_s(tx, spec)} s of this task aside"
        if min(needs.values()) > limit.most or (limit.terms.per == "total" and not aside):
            stops.request(tx, task, "budget", reason)
            return ENDED
        return f"waiting: {reason}"
    return tuple(left)


def _need(tx: Transaction, limit: Limit, project: str, spec: FunctionSpec, wanted: GpuRequest) -> int:
    """Return what must be left of a limit so that an attempt on these devices may start; 0: it does not count here."""
    if not _counts(limit, wanted.sku):
        return 0
    return max(1, _quantum_cost(tx, limit, project, spec, wanted)) if limit.terms.strict else 1


def reserve(
    tx: Transaction, task: sa.Row[Any], spec: FunctionSpec, given: Iterable[Device] | None, bound: Iterable[Limit]
) -> None:
    """Set the first quantum of an attempt aside in every strict budget; `given` are its devices, where they are known."""
    for limit in bound:
        if not limit.terms.strict:
            continue
        if given is None:
            need = max(_quantum_cost(tx, limit, task.project, spec, wanted) for wanted in spec.resources.gpus)
        else:
            skus = [device.sku for device in given]
            need = _rate(tx, limit, task.project, skus, _quantum_s(tx, spec)) * _quantum_s(tx, spec)
        values = {"task": task.key, "epoch": task.epoch + 1, "budget": limit.name}
        tx.insert(_HOLDS, **values, seconds=_quantum_s(tx, spec), amount=need)


def renew(tx: Transaction, task: sa.Row[Any], epoch: int) -> sa.Row[Any]:
    """Set the next quantum of a running attempt aside, or stop it while it has time left for a checkpoint.

    Returns the task as it is then.
    """
    strict = [one for one in budgets.limits(tx, task.project, task.run_id) if one.terms.strict]
    if not strict:
        return task
    holds = {hold.budget: hold for hold in tx.conn.execute(_HELD_FOR, {"this_task": task.key, "this_epoch": epoch})}
    mine = tx.all(sa.select(leases).where((leases.c.task == task.key) & (leases.c.epoch == epoch)))
    elapsed_s = max((metering.elapsed_ns(row) for row in mine), default=0) // 10**9
    quantum_s = _quantum_s(tx, functions.spec(tx, task.project, task.function, task.digest))
    for limit in strict:
        rate = _rate(tx, limit, task.project, [row.sku for row in mine], quantum_s)
        hold, spent = holds.get(limit.name), budgets.used(tx, limit)
        kept_s = elapsed_s if hold is None else max(hold.seconds, elapsed_s)
        until_s = max(kept_s, elapsed_s + quantum_s)
        if spent + budgets.held(tx, limit.name, task.key) + rate * (until_s - elapsed_s) > limit.most:
            until_s = kept_s
        _keep(tx, task.key, epoch, limit.name, until_s, rate * (until_s - elapsed_s), hold is None)
        if until_s == kept_s and rate and task.stop_code is None and until_s < elapsed_s + quantum_s:
            left_s = until_s - elapsed_s
            reason = limit.words(spent, tx.now_ns)
            if spent < limit.most:
                left = (
                    amount(limit.shown(max(0, limit.most - spent)), limit.unit) if limit.is_private else "what is left"
                )
                reason = f"the budget {limit.name!r} cannot pay for more than {left_s} s from now ({left})"
            task = stops.request(tx, task, "budget", reason)
    return task


def cut(tx: Transaction, attempts: Collection[tuple[str, int]]) -> bool:
    """End the leases of attempts that went on beyond what strict budgets had set aside for them and can pay.

    That is time that nobody had allowed: the worker could not hear of the stop. Returns whether there was any.
    """
    found = False
    for task, epoch in attempts:
        for hold in tx.conn.execute(_HELD_FOR, {"this_task": task, "this_epoch": epoch}).all():
            limit = budgets.find(tx, hold.budget)
            if limit is None or not limit.terms.strict:
                continue
            if budgets.used(tx, limit) + budgets.held(tx, limit.name, task) > limit.most:
                found |= metering.close_at(tx, task, epoch, hold.seconds * 10**9)
    return found


def _keep(tx: Transaction, task: str, epoch: int, name: str, seconds: int, aside: int, new: bool) -> None:
    if new:
        tx.insert(_HOLDS, task=task, epoch=epoch, budget=name, seconds=seconds, amount=aside)
        return
    this = (_HOLDS.c.task == task) & (_HOLDS.c.epoch == epoch) & (_HOLDS.c.budget == name)
    tx.run(_HOLDS.update().where(this).values(seconds=seconds, amount=aside))


def _quantum_s(tx: Transaction, spec: FunctionSpec) -> int:
    """Return how long it takes to hear of a stop, to save, and to be given up."""
    return math.ceil(tx.limits.lease_s + spec.grace_s + 2 * tx.limits.heartbeat_s)


def _quantum_cost(tx: Transaction, limit: Limit, project: str, spec: FunctionSpec, wanted: GpuRequest) -> int:
    seconds = _quantum_s(tx, spec)
    return _rate(tx, limit, project, [wanted.sku] * wanted.count, seconds) * seconds


def _rate(tx: Transaction, limit: Limit, project: str, skus: list[str], ahead_s: int) -> int:
    """Return the most that a second of these devices can count, at the dearest phase and price of the time ahead."""
    counted = [sku for sku in skus if _counts(limit, sku)]
    if limit.terms.money_nano is None:
        return FULL_SHARE * len(counted)
    now_s, prices = tx.now_ns // 10**9, tx.prices
    cuts = [cut for cut in prices.cuts_s if now_s < cut <= now_s + ahead_s]
    versions = [prices.at(second) for second in (now_s, *cuts)]
    dearest = {
        sku: max(
            (
                unit.price_nano
                for one in versions
                for phase in PHASES
                if (unit := one.unit_price(sku, phase, project=project))
            ),
            default=0,
        )
        for sku in set(counted)
    }
    return sum(dearest[sku] for sku in counted)


def _counts(limit: Limit, sku: str) -> bool:
    return limit.terms.sku in (None, sku)


def _stop(tx: Transaction, limit: Limit, spent: int) -> None:
    """Stop the attempts that use a spent limit; what waits is left to admission, but for the tasks of a run of its own."""
    reason = limit.words(spent, tx.now_ns)
    if limit.run_id:
        stops.request_all(tx, _TASKS.c.run_id == limit.run_id, "budget", reason)
        return
    using = limit.covered(_TASKS.c.project) & _TASKS.c.gpu & _TASKS.c.state.in_(("dispatched", "running"))
    if limit.terms.sku is None:
        stops.request_all(tx, using, "budget", reason)
        return
    joined = _TASKS.join(_ATTEMPTS, (_ATTEMPTS.c.task == _TASKS.c.key) & (_ATTEMPTS.c.epoch == _TASKS.c.epoch))
    running = sa.select(_TASKS.c.key, _ATTEMPTS.c.devices).select_from(joined).where(using)
    for row in tx.all(running):
        if any(device["sku"] == limit.terms.sku for device in loads(row.devices)):
            stops.request_all(tx, _TASKS.c.key == row.key, "budget", reason)


def _tell(tx: Transaction, limit: Limit, marks: list[int], spent: int) -> None:
    """Tell of every percentage once in a period: in the timelines of what runs, and as a CloudEvent."""
    days = limit.days(tx.now_ns)
    name, since = limit.name or f"run {limit.run_id}", 0 if days is None else days[0]
    told = sa.select(_NOTES.c.percent).where((_NOTES.c.budget == name) & (_NOTES.c.since_day == since))
    known = {row.percent for row in tx.all(told)}
    for percent in marks:
        if percent in known:
            continue
        tx.insert(_NOTES, budget=name, since_day=since, percent=percent, at_ns=tx.now_ns)
        where = _TASKS.c.run_id == limit.run_id if limit.run_id else limit.covered(_TASKS.c.project) & _TASKS.c.gpu
        text = f"{percent} % of {stops.OF_RUN if limit.run_id else f'the budget {limit.name!r}'} is used"
        for task in tx.all(sa.select(_TASKS).where(where & (_TASKS.c.state == "running"))):
            transitions.record(tx, task.key, task.epoch, task.state, text, "budget")
        outbox.budget(tx, limit.terms.covers, name, since, percent, limit.run_id)
