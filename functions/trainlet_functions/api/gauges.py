"""What `/metrics` says about usage: GPU-seconds and cost by project and SKU, what is held now, and how fresh the ledger is.

Gauges, not counters: a sum shrinks when a lease turns out to have ended earlier, which a counter would show as a reset.
The number of series is bounded; what comes beyond it is summed up under the project `other`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily, Metric

from trainlet.core.bills import FULL_SHARE
from trainlet_functions.billing import spending
from trainlet_functions.metering.tables import device_use, leases, quarantine
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction
from trainlet_functions.worker import spool

MOST_SERIES = 1000
OTHER = "other"
_SUMS = schema.spending


def used(tx: Transaction) -> Iterator[Metric]:
    """Yield what every project has used so far, by SKU: from the sums that are kept, not from the ledger."""
    seconds = GaugeMetricFamily("trainlet_gpu_seconds", "GPU-seconds used so far", labels=["project", "sku"])
    cost = GaugeMetricFamily("trainlet_cost", "What they cost", labels=["project", "sku", "currency"])
    columns = (_SUMS.c.project, _SUMS.c.sku)
    parts, nano = sa.func.sum(_SUMS.c.parts).label("parts"), sa.func.sum(_SUMS.c.cost_nano).label("nano")
    chosen = sa.select(*columns, parts, nano).where(_SUMS.c.run_id == spending.ALL_RUNS).group_by(*columns)
    found = {(row.project, row.sku): (int(row.parts), int(row.nano)) for row in tx.all(chosen)}
    for (project, sku), (of_parts, of_nano) in _bounded(found).items():
        seconds.add_metric([project, sku], of_parts / FULL_SHARE)
        cost.add_metric([project, sku, tx.prices.currency], of_nano / 1e9)
    yield seconds
    yield cost
    yield from _busy(tx)


def _busy(tx: Transaction) -> Iterator[Metric]:
    """Yield how much of what was seen of the devices was used, and their energy: samples, beside the bill."""
    labels = ["project", "sku"]
    seen = GaugeMetricFamily("trainlet_gpu_sampled_seconds", "GPU-seconds whose utilization is known", labels=labels)
    busy = GaugeMetricFamily("trainlet_gpu_used_seconds", "Those seconds times the utilization", labels=labels)
    energy = GaugeMetricFamily("trainlet_gpu_energy_joules", "Energy that devices say they used", labels=labels)
    ratio = GaugeMetricFamily("trainlet_gpu_utilization", "Used part of the seconds that are known", labels=labels)
    rows = tx.all(sa.select(device_use))
    times = _bounded({(row.project, row.sku): (row.known_ms, row.used_ms) for row in rows})
    for names, (known_ms, used_ms) in times.items():
        seen.add_metric(names, known_ms / 1000)
        busy.add_metric(names, used_ms / 1000)
        if known_ms:
            ratio.add_metric(names, used_ms / known_ms)
    for names, (energy_mj, _) in _bounded({(row.project, row.sku): (row.energy_mj, 0) for row in rows}).items():
        energy.add_metric(names, energy_mj / 1000)
    yield from (seen, busy, energy, ratio)


def held(tx: Transaction) -> Iterator[Metric]:
    """Yield what is held at this moment, and what there is to hold."""
    family = GaugeMetricFamily("trainlet_gpus_held", "GPUs that running attempts hold", labels=["project", "sku"])
    columns = (leases.c.project, leases.c.sku)
    chosen = sa.select(*columns, sa.func.sum(leases.c.share).label("parts"))
    rows = tx.all(chosen.select_from(_running()).where(_OPEN).group_by(*columns))
    for (project, sku), (parts, _) in _bounded({(row.project, row.sku): (int(row.parts), 0) for row in rows}).items():
        family.add_metric([project, sku], parts / FULL_SHARE)
    yield family
    devices = schema.devices
    there = GaugeMetricFamily("trainlet_gpus", "GPUs that the training API hands out itself", labels=["sku", "held"])
    taken = devices.c.task.is_not(None).label("taken")
    counted = sa.select(devices.c.sku, taken, sa.func.count().label("number")).group_by(devices.c.sku, taken)
    for row in tx.all(counted):
        there.add_metric([row.sku or "any", str(bool(row.taken)).lower()], row.number)
    yield there


def ledger(tx: Transaction, home: Path) -> Iterator[Metric]:
    """Yield how far the ledger is behind what runs, what it refused, and what workers of this machine still spool."""
    oldest = tx.conn.execute(sa.select(sa.func.min(leases.c.touched_ns)).select_from(_running()).where(_OPEN)).scalar()
    lag_s = 0.0 if oldest is None else max(0.0, (tx.now_ns - int(oldest)) / 1e9)
    text = "Age of the oldest reading of a device that a running attempt holds"
    yield GaugeMetricFamily("trainlet_ledger_lag_seconds", text, lag_s)
    late_ns = tx.now_ns - round(3 * tx.limits.heartbeat_s * 1e9)
    late = sa.select(sa.func.count()).select_from(_running()).where(_OPEN & (leases.c.touched_ns < late_ns))
    text = "Leases of running attempts that nobody reported for three heartbeats: their workers spool them, or are gone"
    yield GaugeMetricFamily("trainlet_overdue_leases", text, tx.conn.execute(late).scalar_one())
    family = GaugeMetricFamily("trainlet_usage_refused", "Usage events in quarantine", labels=["reason"])
    for row in tx.all(sa.select(quarantine.c.reason, sa.func.count().label("number")).group_by(quarantine.c.reason)):
        family.add_metric([row.reason], row.number)
    yield family
    spooled = sum(len(spool.read_leftover(file.parent)) for file in (home / "workers").glob(f"*/{spool.NAME}"))
    text = "Leases whose end workers of this machine have not had acknowledged"
    yield GaugeMetricFamily("trainlet_spooled_leases", text, spooled)


_OPEN = leases.c.close_ns.is_(None) & leases.c.until_ns.is_(None) & (schema.attempts.c.state == "running")


def _running() -> sa.FromClause:
    attempts = schema.attempts
    return leases.join(attempts, (attempts.c.task == leases.c.task) & (attempts.c.epoch == leases.c.epoch))


def _bounded(found: dict[tuple[str, str], tuple[int, int]]) -> dict[tuple[str, str], tuple[int, int]]:
    """Keep the largest series, and sum up the others by SKU."""
    ordered = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    kept: dict[tuple[str, str], Any] = dict(ordered[:MOST_SERIES])
    for (_, sku), (parts, nano) in ordered[MOST_SERIES:]:
        before = kept.get((OTHER, sku), (0, 0))
        kept[OTHER, sku] = (before[0] + parts, before[1] + nano)
    return kept
