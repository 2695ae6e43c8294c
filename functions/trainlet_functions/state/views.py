"""Rows as the messages that people and programs see."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.clocks import rfc3339
from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, loads


def stamp(wall_ns: int | None) -> str | None:
    """Format a time that may be missing."""
    return None if wall_ns is None else rfc3339(wall_ns)


def error_info(text: str | None) -> wire.ErrorInfo | None:
    """Read an error column."""
    return None if text is None else wire.ErrorInfo.model_validate_json(text)


def run_view(tx: Transaction, row: sa.Row[Any], *, graph: bool = True) -> wire.RunView:
    """Build the view of a run."""
    return _run_views(tx, [row], graph)[0]


def run_views(tx: Transaction, rows: list[sa.Row[Any]]) -> list[wire.RunView]:
    """Build the views of a listing, without the graphs."""
    return _run_views(tx, rows, graph=False)


def _run_views(tx: Transaction, rows: list[sa.Row[Any]], graph: bool) -> list[wire.RunView]:
    counts: dict[str, dict[str, int]] = {row.id: {} for row in rows}
    table = schema.tasks
    count = sa.select(table.c.run_id, table.c.state, sa.func.count()).where(table.c.run_id.in_(list(counts)))
    for run_id, state, number in tx.conn.execute(count.group_by(table.c.run_id, table.c.state)):
        counts[run_id][state] = number
    return [_run_view(row, counts[row.id], graph) for row in rows]


def _run_view(row: sa.Row[Any], counts: dict[str, int], graph: bool) -> wire.RunView:
    return wire.RunView(
        id=row.id,
        project=row.project,
        pipeline=row.pipeline,
        state=row.state,
        reason=row.reason,
        created_at=rfc3339(row.created_ns),
        finished_at=stamp(row.finished_ns),
        params=loads(row.params),
        outputs=loads(row.outputs),
        error=error_info(row.error),
        budget_nano=row.budget_nano,
        labels=loads(row.labels),
        graph=loads(row.graph) if graph else None,
        task_counts=counts,
    )


def attempt_view(row: sa.Row[Any]) -> wire.AttemptView:
    """Build the view of an attempt."""
    return wire.AttemptView(
        epoch=row.epoch,
        state=row.state,
        worker=row.worker,
        devices=[wire.Device.model_validate(device) for device in loads(row.devices)],
        claimed_at=rfc3339(row.claimed_ns),
        started_at=stamp(row.started_ns),
        finished_at=stamp(row.finished_ns),
        resumed_from_step=row.resumed_from_step,
        reason=row.reason,
        error=error_info(row.error),
    )


def task_views(tx: Transaction, rows: list[sa.Row[Any]]) -> list[wire.TaskView]:
    """Build the views of tasks, with their attempts, in two statements."""
    if not rows:
        return []
    table = schema.attempts
    attempts: dict[str, list[wire.AttemptView]] = {row.key: [] for row in rows}
    keys = [row.key for row in rows if row.epoch > 1 or row.state not in ("queued", "dispatched")]
    for start in range(0, len(keys), 500):
        chosen = table.c.task.in_(keys[start : start + 500])
        for attempt in tx.all(sa.select(table).where(chosen).order_by(table.c.task, table.c.epoch)):
            attempts[attempt.task].append(attempt_view(attempt))
    return [_task_view(row, attempts[row.key]) for row in rows]


def task_view(tx: Transaction, row: sa.Row[Any]) -> wire.TaskView:
    """Build the view of one task."""
    return task_views(tx, [row])[0]


def _task_view(row: sa.Row[Any], attempts: list[wire.AttemptView]) -> wire.TaskView:
    return wire.TaskView(
        key=row.key,
        project=row.project,
        run_id=row.run_id,
        node=row.node,
        function=row.function,
        digest=row.digest,
        state=row.state,
        reason=row.reason,
        epoch=row.epoch,
        version=row.version,
        created_at=rfc3339(row.created_ns),
        updated_at=rfc3339(row.updated_ns),
        finished_at=stamp(row.finished_ns),
        output=loads(row.output),
        error=error_info(row.error),
        progress=loads(row.progress),
        metrics=loads(row.metrics),
        labels=loads(row.labels),
        attempts=attempts,
        checkpoints=[wire.CheckpointNote.model_validate(note) for note in loads(row.checkpoints)],
    )


def function_view(tx: Transaction, row: sa.Row[Any]) -> wire.FunctionView:
    """Build the view of a function with its workers of now."""
    table = schema.workers
    where = (table.c.project == row.project) & (table.c.function == row.name)
    found = tx.all(sa.select(table.c.busy, table.c.revision).where(where))
    return wire.FunctionView(
        name=row.name,
        digest=row.digest,
        spec=FunctionSpec.model_validate_json(row.spec),
        created_at=rfc3339(row.created_ns),
        workers=len(found),
        busy=sum(bool(one.busy) for one in found),
        revisions=dict(sorted(Counter(one.revision for one in found if one.revision).items())),
    )
