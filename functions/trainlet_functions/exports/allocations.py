"""Charges in the shape of OpenCost's allocations, for dashboards that read those: one set per day and name.

OpenCost's numbers are floating point. They are for pictures; the exact cost stands beside them in nano-units.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from trainlet.core.bills import FULL_SHARE, Row
from trainlet_functions.exports import formats

DAY_S = 86_400
By = Literal["project", "run", "sku"]


def allocations(rows: Iterable[Row], by: By = "project") -> dict[str, Any]:
    """Return allocations per UTC day, by project (their namespace), run or SKU; the rounding of an invoice is left out."""
    days: dict[int, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row.kind == "rounding":
            continue
        name = {"project": row.project, "run": row.run_id, "sku": row.sku}[by]
        day = row.start_s - row.start_s % DAY_S  # a row crosses no hour, so no day
        one = days.setdefault(day, {}).setdefault(name, _empty(row, name, day, by))
        one["x_GpuPartSeconds"] += row.seconds * row.share
        one["x_CostNano"] += row.cost_nano or 0
        one["x_DeviceSeconds"] += row.seconds
        one["start"], one["end"] = min(one["start"], row.start_s), max(one["end"], row.end_s)
    sets = [{name: _finished(one) for name, one in sorted(days[day].items())} for day in sorted(days)]
    return {"code": 200, "status": "success", "data": sets}


def _empty(row: Row, name: str, day: int, by: By) -> dict[str, Any]:
    properties: dict[str, Any] = {"provider": "trainlet"}
    if by != "sku":
        properties["namespace"] = row.project
    if by == "run":
        properties["controller"] = row.run_id
    window = {"start": formats.moment(day), "end": formats.moment(day + DAY_S)}
    start = {"name": name, "properties": properties, "window": window, "start": row.start_s, "end": row.end_s}
    return {**start, "x_Currency": row.currency, "x_DeviceSeconds": 0, "x_GpuPartSeconds": 0, "x_CostNano": 0}


def _finished(one: dict[str, Any]) -> dict[str, Any]:
    minutes = (one["end"] - one["start"]) / 60
    hours = one.pop("x_GpuPartSeconds") / FULL_SHARE / 3600
    cost = one["x_CostNano"] / 1e9
    return {
        **one,
        "start": formats.moment(one["start"]),
        "end": formats.moment(one["end"]),
        "minutes": minutes,
        "gpuHours": hours,
        "gpuCount": hours * 60 / minutes,
        "gpuCost": cost,
        "totalCost": cost,
    }
