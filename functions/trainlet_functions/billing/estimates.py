"""Estimates: steps that have not run, rated like the leases they would be (invariant I13).

How long a task takes is given, or it is that of the median of the last tasks of its function on the same kind of device.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.estimates import Basis, Estimate, EstimateRequest, EstimateRow, EstimateStep, PricedGpu
from trainlet.core.specs import GpuRequest
from trainlet.core.wire import Rate
from trainlet_functions import metering
from trainlet_functions.billing.prices import PHASES
from trainlet_functions.billing.rating import Charge, Terms, rate
from trainlet_functions.metering.segments import SECOND_NS
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction

LOOKED_AT = 20
Phases = Sequence[tuple[str, int]]
_TASKS = schema.tasks


def estimate(tx: Transaction, project: str, asked: EstimateRequest) -> Estimate:
    """Return what the steps of a project would cost. Raises UserError for a phase that there is not."""
    start_s = -(-tx.now_ns // SECOND_NS) if asked.start_s is None else asked.start_s
    rows = [_row(tx, project, step, start_s, asked.rate) for step in asked.steps]
    counted = [row for row in rows if row.basis != "free"]
    unpriced = {gpu.sku for row in counted for gpu in row.gpus[:1] if gpu.nano_per_s is None}
    bounds = [row.most_nano for row in counted]
    return Estimate(
        rows=rows,
        cost_nano=sum(row.cost_nano or 0 for row in rows),
        most_nano=None if None in bounds or any(row.each for row in counted) else sum(one or 0 for one in bounds),
        gpu_seconds=sum(row.gpu_seconds or 0 for row in rows),
        complete=all(row.cost_nano is not None and not row.each for row in counted),
        currency=tx.prices.currency,
        price_version=tx.prices.at(start_s).version,
        starts_at=rfc3339(start_s * SECOND_NS),
        unpriced_skus=sorted(unpriced),
    )


def _row(tx: Transaction, project: str, step: EstimateStep, start_s: int, kind: Rate) -> EstimateRow:
    tasks, each = (1, True) if step.tasks is None else (step.tasks, False)
    if not step.gpus:
        return EstimateRow(node=step.node, tasks=tasks, each=each, basis="free", cost_nano=0, most_nano=0)
    for phase, _ in step.phases:
        if phase not in PHASES:
            raise UserError(f"steps.{step.node}: {phase!r} is no phase. {nearest(phase, PHASES)}")
    first = step.gpus[0]
    phases: Phases = step.phases
    seen = 0
    basis: Basis = "given"
    if not phases:
        phases, seen = _history(tx, project, step.function or "", first.sku)
        basis = "history" if phases else "unknown"
    seconds = sum(length for _, length in phases) if phases else None
    most = None
    if step.most_s is not None:
        costs = [_cost(tx, project, one, [("run", step.most_s)], start_s, kind) for one in step.gpus]
        most = None if None in costs else max(one or 0 for one in costs) * tasks
    cost = None if seconds is None else _cost(tx, project, first, phases, start_s, kind)
    return EstimateRow(
        node=step.node,
        gpus=tuple(_priced(tx, project, one, start_s, kind) for one in step.gpus),
        tasks=tasks,
        each=each,
        seconds=seconds,
        gpu_seconds=None if seconds is None else seconds * first.count * tasks,
        cost_nano=None if cost is None else cost * tasks,
        most_nano=most,
        basis=basis,
        seen=seen,
    )


def _cost(tx: Transaction, project: str, gpu: GpuRequest, phases: Phases, start_s: int, kind: Rate) -> int | None:
    """Rate the lease of one device that began at `start_s`; every device has its own, and all are equal."""
    marks: list[tuple[str, int]] = []
    held_s = 0
    for phase, length in phases:
        marks.append((phase, held_s * SECOND_NS))
        held_s += length
    segments = metering.segments_of(start_s * SECOND_NS, held_s * SECOND_NS, marks)
    charges: list[Charge] = rate(segments, Terms(gpu.sku, project, kind), tx.prices, hourly=False)
    if any(charge.cost_nano is None for charge in charges):
        return None
    return sum(charge.cost_nano or 0 for charge in charges) * gpu.count


def _priced(tx: Transaction, project: str, gpu: GpuRequest, start_s: int, kind: Rate) -> PricedGpu:
    unit = tx.prices.at(start_s).unit_price(gpu.sku, "run", kind, project)
    return PricedGpu(sku=gpu.sku, count=gpu.count, nano_per_s=None if unit is None else unit.price_nano * gpu.count)


def _history(tx: Transaction, project: str, function: str, sku: str) -> tuple[Phases, int]:
    """Return the phases of the median of the last tasks of a function that succeeded on a SKU, and how many those are."""
    last = (
        sa.select(_TASKS.c.key)
        .where(_TASKS.c.project == project, _TASKS.c.function == function, _TASKS.c.state == "succeeded")
        .order_by(_TASKS.c.created_ns.desc(), _TASKS.c.key)
        .limit(LOOKED_AT)
    ).subquery()
    chosen = sa.select(leases).join(last, last.c.key == leases.c.task)
    chosen = chosen.where((leases.c.project == project) & (leases.c.sku == sku))
    longest: dict[
        tuple[str, int], dict[str, int]
    ] = {}  # the devices of an attempt are held alike, but for milliseconds
    for lease in tx.all(chosen.order_by(leases.c.task, leases.c.epoch, leases.c.lease)):
        found: dict[str, int] = {}
        for segment in metering.segments(lease):
            found[segment.phase] = found.get(segment.phase, 0) + segment.seconds
        before = longest.setdefault((lease.task, lease.epoch), found)
        if sum(found.values()) > sum(before.values()):
            longest[lease.task, lease.epoch] = found
    tasks: dict[str, dict[str, int]] = {}
    for (task, _), found in longest.items():
        total = tasks.setdefault(task, {})
        for phase, seconds in found.items():
            total[phase] = total.get(phase, 0) + seconds
    ordered = sorted(tasks.values(), key=lambda one: (sum(one.values()), sorted(one.items())))
    if not ordered:
        return (), 0
    middle = ordered[(len(ordered) - 1) // 2]
    return [(phase, middle[phase]) for phase in PHASES if phase in middle], len(ordered)
