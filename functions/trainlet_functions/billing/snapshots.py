"""Snapshots: the rows of a period as one moment of the ledger saw them, for exports and reports.

A snapshot is lines of JSON: what it is, its rows, and an end with their number, sum and digest. A reader that finds no
end, or another one, has not got all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainlet.core.bills import EVERY_PROJECT, Period, Row, Snapshot, SnapshotEnd
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import UserError
from trainlet.core.sums import Sums
from trainlet_functions.billing import closing, drafts
from trainlet_functions.state.database import Database, Transaction


def head(tx: Transaction, period: Period, scope: str) -> Snapshot:
    """Say what a snapshot would be; raises UserError for a period that has not begun."""
    if period.start_s * 10**9 > tx.now_ns:
        raise UserError(f"Period {period} has not begun; it is {rfc3339(tx.now_ns)} now.")
    row = closing.find(tx, period)
    return Snapshot(
        period=str(period),
        state=closing.state_of(row),
        scope=scope,
        currency=tx.prices.currency if row is None else row.currency,
        as_of=rfc3339(tx.now_ns if row is None or row.closed_ns is None else row.closed_ns),
        digest=None if row is None else row.digest,
    )


def rows(tx: Transaction, period: Period, scope: str) -> Iterator[Row]:
    """Yield the rows of a period, project by project."""
    owners = drafts.projects(tx, period.end_s) if scope == EVERY_PROJECT else [scope]
    closed = closing.state(tx, period) == "closed"
    for project in owners:
        if closed or closing.invoiced(tx, project, period):
            yield from drafts.frozen(tx, project, period)
        else:
            yield from drafts.draft(tx, project, period)


def stream(database: Database, period: Period, scope: str) -> Iterator[bytes]:
    """Yield the lines of a snapshot, all from one transaction."""
    with database.read() as tx:
        yield head(tx, period, scope).model_dump_json().encode() + b"\n"
        sums = Sums()
        yield from sums.lines(rows(tx, period, scope))
        end = SnapshotEnd(rows=sums.rows, cost_nano=sums.cost_nano, digest=sums.digest)
        yield end.model_dump_json().encode() + b"\n"
