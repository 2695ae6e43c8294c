"""What people read of the ledger: usage of a run or task, second by second true, and what a run has spent."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.billing.rating import rate
from trainlet_functions.metering.ingest import elapsed_ns, is_open
from trainlet_functions.metering.segments import segments_of
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, loads


def usage(tx: Transaction, project: str, *, run_id: str | None = None, task: str | None = None) -> wire.UsageReport:
    """Return every priced row of a run, a task or the project, and their sums."""
    where = leases.c.project == project
    if run_id is not None:
        where &= leases.c.run_id == run_id
    if task is not None:
        where &= leases.c.task == task
    nodes = sa.select(leases, schema.tasks.c.node).join(schema.tasks, schema.tasks.c.key == leases.c.task, isouter=True)
    rows: list[wire.UsageRow] = []
    versions: list[str] = []
    for lease in tx.all(nodes.where(where).order_by(leases.c.anchor_ns, leases.c.lease)):
        priced = _rows(tx, lease)
        rows += [row for row, _ in priced]
        versions += [version for _, version in priced]
    latest = tx.prices.versions[-1]
    return wire.UsageReport(
        rows=rows,
        gpu_seconds=sum(row.seconds for row in rows),
        cost_nano=sum(row.cost_nano or 0 for row in rows),
        currency=latest.currency,
        price_version=", ".join(dict.fromkeys(versions)) or latest.version,
        virtual=any(row.virtual for row in rows),
        unpriced_skus=sorted({row.sku for row in rows if row.price_nano is None}),
    )


def spent_nano(tx: Transaction, project: str, run_id: str) -> int:
    """Return what a run has cost so far, open leases included."""
    chosen = sa.select(leases).where((leases.c.project == project) & (leases.c.run_id == run_id))
    return sum(row.cost_nano or 0 for lease in tx.all(chosen) for row, _ in _rows(tx, lease))


def _rows(tx: Transaction, lease: sa.Row[Any]) -> list[tuple[wire.UsageRow, str]]:
    segments = segments_of(lease.anchor_ns, elapsed_ns(lease), [(name, begin) for name, begin in loads(lease.phases)])
    return [
        (
            wire.UsageRow(
                task=lease.task,
                node=getattr(lease, "node", None) or "",
                run_id=lease.run_id,
                epoch=lease.epoch,
                lease=lease.lease,
                device=lease.device,
                sku=lease.sku,
                virtual=lease.virtual,
                phase=charge.segment.phase,
                start_s=charge.segment.start_s,
                end_s=charge.segment.end_s,
                seconds=charge.segment.seconds,
                price_nano=charge.price_nano,
                cost_nano=charge.cost_nano,
                currency=tx.prices.versions[-1].currency,
                open=is_open(lease),
            ),
            charge.version,
        )
        for charge in rate(segments, lease.sku, tx.prices, lease.share)
    ]
