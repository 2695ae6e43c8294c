"""What a period of a project holds: frozen rows where it is closed, else today's usage and what is owed from before.

Corrections are looked for in leases that changed since the last period began to close, or in all of them where prices of
the past changed. They are booked in the first period that is open, and only there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from trainlet.core.bills import Period, Row
from trainlet_functions import metering
from trainlet_functions.batches import batches
from trainlet_functions.billing.reports import terms
from trainlet_functions.billing.rows import Usage, corrections, rated
from trainlet_functions.billing.tables import bill_periods, bill_rows, price_versions
from trainlet_functions.metering.tables import leases
from trainlet_functions.state.database import Transaction, loads

_CHUNK = 400
_STREAM = 1000
_SKEW_NS = 2 * 86_400 * 10**9  # a wall clock that was set back must not hide a change


def first_used(tx: Transaction) -> Period | None:
    """Return the period of the first usage that there is."""
    first_ns = tx.conn.execute(sa.select(sa.func.min(leases.c.anchor_ns))).scalar()
    return None if first_ns is None else Period.of(first_ns // 10**9)


def projects(tx: Transaction, until_s: int) -> list[str]:
    """Return who used anything before a second, in the order of their names' code points."""
    chosen = sa.select(leases.c.project).where(leases.c.anchor_ns < until_s * 10**9).distinct()
    return sorted(tx.conn.execute(chosen).scalars())


def closed_until_s(tx: Transaction) -> int | None:
    """Return the second at which the open time begins, None while no period was closed."""
    last = tx.conn.execute(
        sa.select(sa.func.max(bill_periods.c.period)).where(bill_periods.c.closed_ns.is_not(None))
    ).scalar()
    return None if last is None else Period.parse(last).end_s


def frozen(tx: Transaction, project: str, period: Period) -> Iterator[Row]:
    """Yield the rows of an invoice."""
    chosen = (
        sa.select(bill_rows.c.body)
        .where((bill_rows.c.period == str(period)) & (bill_rows.c.project == project))
        .order_by(bill_rows.c.position)
    )
    for row in tx.conn.execute(chosen.execution_options(yield_per=_STREAM)):
        yield Row.read(loads(row.body))


def draft(tx: Transaction, project: str, period: Period) -> Iterator[Row]:
    """Yield what an open period of a project holds now, without a rounding: corrections first, then its usage."""
    begun_s = closed_until_s(tx)
    if begun_s == period.start_s:
        yield from _corrections(tx, project, period)
    prices = tx.prices
    held_ns = leases.c.anchor_ns + sa.func.coalesce(leases.c.close_ns, leases.c.heartbeat_ns)
    here = (leases.c.anchor_ns < period.end_s * 10**9) & (held_ns >= period.start_s * 10**9)
    for lease in _ordered(tx, (leases.c.project == project) & here):
        yield from rated(usage_of(lease), prices, period.start_s, period.end_s)


def usage_of(lease: sa.Row[Any]) -> Usage:
    """Return a stored lease as billing sees it."""
    return Usage(
        terms(lease),
        lease.lease,
        lease.run_id,
        lease.task,
        lease.epoch,
        lease.function,
        lease.device,
        lease.virtual,
        metering.segments(lease),
        loads(lease.tags),
    )


def _ordered(tx: Transaction, where: Any) -> Iterator[sa.Row[Any]]:
    """Yield leases by their begin, then by the code points of their names, whatever the database's collation is."""
    chosen = sa.select(leases).where(where).order_by(leases.c.anchor_ns)
    found = tx.conn.execute(chosen.execution_options(yield_per=_STREAM))
    for _, together in itertools.groupby(found, key=lambda lease: lease.anchor_ns):
        yield from sorted(together, key=lambda lease: lease.lease)


def _corrections(tx: Transaction, project: str, period: Period) -> Iterator[Row]:
    prices = tx.prices
    since_ns = _since_ns(tx)
    changed = leases.c.touched_ns > since_ns if since_ns is not None else sa.true()
    before = (leases.c.project == project) & (leases.c.anchor_ns < period.start_s * 10**9) & changed
    for together in batches(_ordered(tx, before), _CHUNK):
        billed = _billed(tx, project, [lease.lease for lease in together])
        for lease in together:
            truth = rated(usage_of(lease), prices, 0, period.start_s)
            yield from corrections(billed.get(lease.lease, ()), truth, period)


def _since_ns(tx: Transaction) -> int | None:
    """Return since when a change may have missed its period; None where prices of closed time changed: look at all."""
    closing_ns = tx.conn.execute(
        sa.select(sa.func.max(bill_periods.c.closing_ns)).where(bill_periods.c.closed_ns.is_not(None))
    ).scalar_one()
    since_ns = int(closing_ns) - _SKEW_NS
    repriced = sa.select(price_versions.c.version).where(price_versions.c.applied_ns > since_ns)
    return None if tx.all(repriced.limit(1)) else since_ns


def _billed(tx: Transaction, project: str, names: list[str]) -> dict[str, list[Row]]:
    chosen = sa.select(bill_rows.c.body).where((bill_rows.c.project == project) & bill_rows.c.lease.in_(names))
    found: dict[str, list[Row]] = {}
    for body in tx.conn.execute(chosen).scalars():
        row = Row.read(loads(body))
        found.setdefault(row.lease, []).append(row)
    return found
