"""What people read of the ledger: usage of a run or task, second by second true, and how busy its devices were."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.samples import DeviceUse
from trainlet_functions import metering
from trainlet_functions.billing.prices import PriceList
from trainlet_functions.billing.rating import Charge, Terms, rate
from trainlet_functions.metering import samples
from trainlet_functions.metering.ingest import is_open
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction


def usage(tx: Transaction, project: str, *, run_id: str | None = None, task: str | None = None) -> wire.UsageReport:
    """Return every priced row of a run, a task or the project, and their sums."""
    where = leases.c.project == project
    if run_id is not None:
        where &= leases.c.run_id == run_id
    if task is not None:
        where &= leases.c.task == task
    nodes = sa.select(leases, schema.tasks.c.node).join(schema.tasks, schema.tasks.c.key == leases.c.task, isouter=True)
    prices = tx.prices
    rows: list[wire.UsageRow] = []
    busy: list[DeviceUse] = []
    versions: list[str] = []
    seen = samples.of_leases(tx, where)
    for lease in tx.all(nodes.where(where).order_by(leases.c.anchor_ns, leases.c.lease)):
        priced = charges(lease, prices)
        rows += [_row(lease, charge, prices.currency) for charge in priced]
        versions += [charge.version for charge in priced]
        allocated_s = sum(charge.segment.seconds for charge in priced)
        busy.append(samples.use(lease, allocated_s, seen.get((lease.project, lease.lease))))
    return wire.UsageReport(
        rows=rows,
        devices=busy,
        gpu_seconds=sum(row.seconds for row in rows),
        cost_nano=sum(row.cost_nano or 0 for row in rows),
        currency=prices.currency,
        price_version=", ".join(dict.fromkeys(versions)) or prices.versions[-1].version,
        virtual=any(row.virtual for row in rows),
        unpriced_skus=sorted({row.sku for row in rows if row.price_nano is None}),
    )


def terms(lease: sa.Row[Any]) -> Terms:
    """Return what a stored lease is priced by."""
    return Terms(lease.sku, lease.project, lease.rate, lease.share, lease.part)


def charges(lease: sa.Row[Any], prices: PriceList, *, hourly: bool = False) -> list[Charge]:
    """Price a stored lease."""
    return rate(metering.segments(lease), terms(lease), prices, hourly=hourly)


def _row(lease: sa.Row[Any], charge: Charge, currency: str) -> wire.UsageRow:
    return wire.UsageRow(
        task=lease.task,
        node=lease.node or "",
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
        currency=currency,
        open=is_open(lease),
    )
