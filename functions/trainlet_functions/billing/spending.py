"""Spending: what each project and run has used, by UTC day and SKU, kept up to date instead of summed up when asked.

`count` looks at the leases that this transaction has touched and adds what is new, so the sums are always those of the
ledger: a lease that shrinks (a newer one took its device, its worker was lost) is taken off again, and counting twice
changes nothing. Budgets, metrics and summaries read the sums; what a person is billed comes from the ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from trainlet_functions.batches import batches
from trainlet_functions.billing import rating, reports
from trainlet_functions.billing.prices import PriceList
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction

DAY_S = 86_400
ALL_RUNS = ""
Use = tuple[int, int]
"""Device-seconds in parts of 5040, and nano-units."""
_SUMS, _OF_LEASE = schema.spending, schema.lease_spending
_CHUNK = 500
_ADD = (
    _SUMS.update()
    .where(_SUMS.c.project == sa.bindparam("of_project"))
    .where(_SUMS.c.run_id == sa.bindparam("of_run"))
    .where(_SUMS.c.day == sa.bindparam("on_day"))
    .where(_SUMS.c.sku == sa.bindparam("of_sku"))
    .values(
        parts=_SUMS.c.parts + sa.bindparam("more_parts", type_=sa.BigInteger),
        cost_nano=_SUMS.c.cost_nano + sa.bindparam("more_nano", type_=sa.BigInteger),
    )
)
_CHANGE = (
    _OF_LEASE.update()
    .where(_OF_LEASE.c.project == sa.bindparam("of_project"))
    .where(_OF_LEASE.c.lease == sa.bindparam("of_lease"))
    .where(_OF_LEASE.c.day == sa.bindparam("on_day"))
    .values(parts=sa.bindparam("parts"), cost_nano=sa.bindparam("cost_nano"))
)
_TOUCHED = sa.select(leases).where(leases.c.touched_ns == sa.bindparam("now_ns", type_=sa.BigInteger))


def count(tx: Transaction) -> set[tuple[str, str]]:
    """Add what changed in this transaction; returns the (project, run) of every lease that was touched."""
    rows = list(tx.conn.execute(_TOUCHED, {"now_ns": tx.now_ns}).all())
    _count(tx, rows)
    return {(row.project, row.run_id) for row in rows}


def recount(tx: Transaction) -> None:
    """Count all leases anew, as after a change of prices that holds for the past."""
    stream = tx.conn.execute(sa.select(leases).execution_options(yield_per=10 * _CHUNK))
    for rows in batches(stream, 10 * _CHUNK):
        _count(tx, rows)


def _count(tx: Transaction, rows: list[sa.Row[Any]]) -> None:
    if not rows:
        return
    prices, before = tx.prices, _before(tx, rows)
    deltas: dict[tuple[str, str, int, str], Use] = {}
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for row in rows:
        was, now = before.get((row.project, row.lease), {}), by_day(row, prices)
        for day in was.keys() | now.keys():
            (old_parts, old_nano), (parts, nano) = was.get(day, (0, 0)), now.get(day, (0, 0))
            if (old_parts, old_nano) == (parts, nano) and day in was:
                continue
            if day in was:
                this = {"of_project": row.project, "of_lease": row.lease, "on_day": day}
                changed.append({**this, "parts": parts, "cost_nano": nano})
            else:
                values = {"project": row.project, "lease": row.lease, "day": day}
                new.append({**values, "parts": parts, "cost_nano": nano})
            for run_id in (row.run_id, ALL_RUNS):
                key = (row.project, run_id, day, row.sku)
                so_far = deltas.get(key, (0, 0))
                deltas[key] = (so_far[0] + parts - old_parts, so_far[1] + nano - old_nano)
    if changed:
        tx.conn.execute(_CHANGE, changed)
    if new:
        tx.conn.execute(_OF_LEASE.insert(), new)
    for (project, run_id, day, sku), (parts, nano) in sorted(deltas.items()):
        this = {"of_project": project, "of_run": run_id, "on_day": day, "of_sku": sku}
        if not tx.run(_ADD, {**this, "more_parts": parts, "more_nano": nano}):
            tx.insert(_SUMS, project=project, run_id=run_id, day=day, sku=sku, parts=parts, cost_nano=nano)


def _before(tx: Transaction, rows: list[sa.Row[Any]]) -> dict[tuple[str, str], dict[int, Use]]:
    found: dict[tuple[str, str], dict[int, Use]] = {}
    names = sorted({row.lease for row in rows})
    for together in batches(names, _CHUNK):
        chosen = _OF_LEASE.c.lease.in_(together)
        projects = _OF_LEASE.c.project.in_(sorted({row.project for row in rows}))
        for one in tx.all(sa.select(_OF_LEASE).where(projects & chosen)):
            found.setdefault((one.project, one.lease), {})[one.day] = (one.parts, one.cost_nano)
    return found


def by_day(lease: sa.Row[Any], prices: PriceList) -> dict[int, Use]:
    """Return what a stored lease used on each UTC day; what has no price costs nothing and is counted all the same."""
    days: dict[int, Use] = {}
    for charge in reports.charges(lease, prices):
        begin = charge.segment.start_s
        while begin < charge.segment.end_s:
            day = begin // DAY_S
            end = min(charge.segment.end_s, (day + 1) * DAY_S)
            nano = 0
            if charge.price_nano is not None:
                nano = rating.cost_nano(charge.price_nano, begin, end, lease.share, lease.part)
            parts, so_far = days.get(day, (0, 0))
            days[day] = (parts + (end - begin) * lease.share, so_far + nano)
            begin = end
    return days


def used(
    tx: Transaction, projects: sa.ColumnElement[bool], run_id: str, days: tuple[int, int] | None, sku: str | None
) -> Use:
    """Return what was used by projects (or by one run) on days [first, past), of one SKU or of all."""
    where = projects & (_SUMS.c.run_id == run_id)
    if days is not None:
        where &= (_SUMS.c.day >= days[0]) & (_SUMS.c.day < days[1])
    if sku is not None:
        where &= _SUMS.c.sku == sku
    row = tx.conn.execute(sa.select(sa.func.sum(_SUMS.c.parts), sa.func.sum(_SUMS.c.cost_nano)).where(where)).one()
    return int(row[0] or 0), int(row[1] or 0)


def of_runs(tx: Transaction, project: str, run_ids: Iterable[str]) -> dict[str, Use]:
    """Return what runs of a project have used so far, open leases included."""
    names = sorted(set(run_ids))
    found: dict[str, Use] = dict.fromkeys(names, (0, 0))
    columns = (_SUMS.c.run_id, sa.func.sum(_SUMS.c.parts), sa.func.sum(_SUMS.c.cost_nano))
    for together in batches(names, _CHUNK):
        where = (_SUMS.c.project == project) & _SUMS.c.run_id.in_(together)
        for run_id, parts, nano in tx.conn.execute(sa.select(*columns).where(where).group_by(_SUMS.c.run_id)):
            found[run_id] = (int(parts), int(nano))
    return found
