"""The history of a task's metrics: as many points of each as a chart can show, however long the task runs.

A metric keeps every `stride`-th value that a worker told. When they are too many, the stride doubles and every other one
goes, so the points stay evenly spread. The newest value is kept beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.state import schema, tasks
from trainlet_functions.state.database import Transaction

MOST_POINTS = 400
MOST_METRICS = 50
_SERIES, _POINTS = schema.series, schema.points


def note(tx: Transaction, task: str, values: Mapping[str, float]) -> None:
    """Add the values that a worker tells now; one that did not change makes no new point."""
    known: dict[str, sa.Row[Any] | None] = {
        row.name: row for row in tx.all(sa.select(_SERIES).where(_SERIES.c.task == task))
    }
    for name, value in values.items():
        row = known.get(name)
        if row is None:
            if len(known) < MOST_METRICS:
                known[name] = None
                tx.insert(_SERIES, task=task, name=name, seen=0, stride=1, last_ns=tx.now_ns, last=value)
                tx.insert(_POINTS, task=task, name=name, number=0, at_ns=tx.now_ns, value=value)
        elif value != row.last:
            _add(tx, row, value)


def _add(tx: Transaction, row: sa.Row[Any], value: float) -> None:
    seen, stride = row.seen + 1, row.stride
    if seen % stride == 0:
        tx.insert(_POINTS, task=row.task, name=row.name, number=seen, at_ns=tx.now_ns, value=value)
    if seen // stride >= MOST_POINTS:
        stride *= 2
        mine = (_POINTS.c.task == row.task) & (_POINTS.c.name == row.name)
        tx.run(_POINTS.delete().where(mine & (_POINTS.c.number % stride != 0)))
    mine = (_SERIES.c.task == row.task) & (_SERIES.c.name == row.name)
    tx.run(_SERIES.update().where(mine).values(seen=seen, stride=stride, last_ns=tx.now_ns, last=value))


def history(tx: Transaction, project: str, task: str) -> wire.MetricHistory:
    """Return the points of each metric of a task, in seconds since it was created; raises NotFoundError."""
    created_ns = tasks.row(tx, project, task).created_ns

    def point(at_ns: int, value: float) -> tuple[float, float]:
        return round(max(0, at_ns - created_ns) / 1e9, 3), value

    found: dict[str, list[tuple[float, float]]] = {}
    ordered = sa.select(_POINTS).where(_POINTS.c.task == task).order_by(_POINTS.c.name, _POINTS.c.number)
    for row in tx.all(ordered):
        found.setdefault(row.name, []).append(point(row.at_ns, row.value))
    for row in tx.all(sa.select(_SERIES).where(_SERIES.c.task == task, _SERIES.c.seen % _SERIES.c.stride != 0)):
        found[row.name].append(point(row.last_ns, row.last))
    return wire.MetricHistory(metrics=found)
