"""Periods: open, closing, closed. A closed one is never opened again; what is found later goes to the next one.

Closing freezes one project after the other, each in a transaction of its own, so the platform goes on in between and a
crash anywhere is continued by closing again. The last transaction seals the period with one digest.
"""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sa

from trainlet.core.bills import EVERY_PROJECT, Invoice, Period, PeriodState, PeriodView, Row, invoice_id
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import ConflictError, UserError
from trainlet.core.sums import Sums
from trainlet_functions.batches import batches
from trainlet_functions.billing import drafts
from trainlet_functions.billing.rows import rounding
from trainlet_functions.billing.tables import bill_invoices, bill_periods, bill_rows
from trainlet_functions.state.database import Database, Transaction, dumps

_BATCH = 2000


def close(database: Database, period: Period, by: str, *, unpriced: bool = False) -> PeriodView:
    """Freeze a period for good; closing it again returns it as it is.

    Raises UserError while it goes on, while an earlier one is open, or where usage has no price (unless `unpriced`: a
    price that comes later is a correction then).
    """
    with database.write() as tx:
        _begin(tx, period, by)
        owners = drafts.projects(tx, period.end_s)
    for project in owners:
        with database.write() as tx:
            _freeze(tx, project, period, unpriced)
    with database.write() as tx:
        late = [one for one in drafts.projects(tx, period.end_s) if one not in owners]
        for project in late:
            _freeze(tx, project, period, unpriced)
        _seal(tx, period)
        return view(tx, period)


def state(tx: Transaction, period: Period) -> PeriodState:
    """Return how far a period is."""
    return state_of(find(tx, period))


def find(tx: Transaction, period: Period) -> sa.Row[Any] | None:
    """Return the row of a period that is no longer open."""
    return tx.one(sa.select(bill_periods).where(bill_periods.c.period == str(period)))


def state_of(row: sa.Row[Any] | None) -> PeriodState:
    """Return how far the period of a row is."""
    if row is None:
        return "open"
    return "closing" if row.closed_ns is None else "closed"


def view(tx: Transaction, period: Period, scope: str = EVERY_PROJECT) -> PeriodView:
    """Return a period with the invoices of a scope: one project, or all of them."""
    row = find(tx, period)
    if row is None:
        return PeriodView(period=str(period), state="open", currency=tx.prices.currency)
    return PeriodView(
        period=str(period),
        state=state_of(row),
        currency=row.currency,
        closing_at=rfc3339(row.closing_ns),
        closed_at=None if row.closed_ns is None else rfc3339(row.closed_ns),
        digest=row.digest,
        invoices=[one for one in _invoices(tx, period) if scope in (EVERY_PROJECT, one.project)],
    )


def periods(tx: Transaction, scope: str = EVERY_PROJECT) -> list[PeriodView]:
    """Return all periods from the first that was used or closed to the one that goes on now."""
    first_closed = tx.conn.execute(sa.select(sa.func.min(bill_periods.c.period))).scalar()
    now = Period.of(tx.now_ns // 10**9)
    listed: list[PeriodView] = []
    one = min(now, drafts.first_used(tx) or now, Period.parse(first_closed) if first_closed else now)
    while one <= now:
        listed.append(view(tx, one, scope))
        one = one.next
    return listed


def _begin(tx: Transaction, period: Period, by: str) -> None:
    if tx.now_ns < period.end_s * 10**9:
        raise UserError(
            f"Period {period} goes on until {rfc3339(period.end_s * 10**9)}; close it after that. "
            "`trainlet usage` shows what was used so far."
        )
    if state(tx, period) != "open":
        return
    begun_s = drafts.closed_until_s(tx)
    before = (drafts.first_used(tx) or period) if begun_s is None else Period.of(begun_s)
    if before < period:
        raise UserError(f"Period {before} is open: close it before {period}, so that nothing falls between.")
    if before > period:
        if begun_s is not None:
            raise ConflictError(
                f"All time before {before} is closed. What came later for {period} is booked in {before}."
            )
        raise UserError(f"Nothing was used in {period}: the first usage was in {before}.")
    going = tx.conn.execute(sa.select(bill_periods.c.period).where(bill_periods.c.closed_ns.is_(None))).scalar()
    if going is not None:
        raise ConflictError(f"Period {going} is closing; close it again to finish that.")
    tx.insert(
        bill_periods,
        period=str(period),
        currency=tx.prices.currency,
        closing_ns=tx.now_ns,
        closing_by=by,
        closed_ns=None,
        digest=None,
    )


def invoiced(tx: Transaction, project: str, period: Period) -> bool:
    """Say whether a project's rows of a period are frozen."""
    table = bill_invoices.c
    return bool(tx.all(sa.select(table.project).where((table.period == str(period)) & (table.project == project))))


def _freeze(tx: Transaction, project: str, period: Period, unpriced: bool) -> None:
    if state(tx, period) == "closed" or invoiced(tx, project, period):
        return
    sums = Sums()
    for batch in batches(drafts.draft(tx, project, period), _BATCH):
        _write(tx, batch, sums.rows)
        sums.add_all(batch)
    if sums.unpriced and not unpriced:
        raise UserError(
            f"Usage of {', '.join(sorted(sums.unpriced))} by project {project} has no price in {period}. Add one with "
            "`trainlet prices apply FILE --retroactive`, or close with --unpriced: a later price becomes a correction."
        )
    if not sums.rows:
        return
    metered, name = sums.cost_nano, invoice_id(project, str(period))
    last = rounding(project, period, name, metered, tx.prices.currency)
    if last is not None:
        _write(tx, [sums.add(last)], sums.rows - 1)
    invoice = Invoice(
        id=name,
        project=project,
        rows=sums.rows,
        seconds=sums.seconds,
        metered_nano=metered,
        rounding_nano=sums.cost_nano - metered,
        payable_nano=sums.cost_nano,
        list_nano=sums.list_nano,
        digest=sums.digest,
        unpriced_skus=sorted(sums.unpriced),
    )
    tx.insert(bill_invoices, period=str(period), project=project, body=invoice.model_dump_json(), frozen_ns=tx.now_ns)


def _write(tx: Transaction, rows: list[Row], first: int) -> None:
    tx.conn.execute(
        bill_rows.insert(),
        [
            {
                "project": row.project,
                "id": row.id,
                "period": row.period,
                "position": place,
                "lease": row.lease,
                "corrects": row.corrects,
                "body": dumps(row.data(), sort_keys=True),
            }
            for place, row in enumerate(rows, first)
        ],
    )


def _seal(tx: Transaction, period: Period) -> None:
    digest = hashlib.sha256("".join(one.digest for one in _invoices(tx, period)).encode()).hexdigest()
    this = (bill_periods.c.period == str(period)) & bill_periods.c.closed_ns.is_(None)
    tx.run(bill_periods.update().where(this).values(closed_ns=tx.now_ns, digest=digest))


def _invoices(tx: Transaction, period: Period) -> list[Invoice]:
    chosen = sa.select(bill_invoices.c.body).where(bill_invoices.c.period == str(period))
    found = [Invoice.model_validate_json(body) for body in tx.conn.execute(chosen).scalars()]
    return sorted(found, key=lambda one: one.project)
