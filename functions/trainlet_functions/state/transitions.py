"""The state machine of a task, in one place.

    queued -> dispatched -> running -> succeeded | failed | canceled
    running -> queued                   preemption, lost worker, retry
    queued | dispatched -> failed       no device or worker will ever come
    queued | dispatched -> canceled     nothing to save, so at once
    failed | canceled -> queued         only when a person resumes the run

Every move has a reason in words, a time, an actor, a line in the timeline and a CloudEvent in the outbox, all in the
transaction that makes it. `version` comes from a counter of the run, so that a cursor over it misses nothing.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.state import outbox, schema
from trainlet_functions.state.database import Transaction, plain

QUIET_S = 30.0
ALLOWED: dict[str, frozenset[str]] = {
    "new": frozenset({"queued"}),
    "queued": frozenset({"dispatched", "canceled", "failed"}),
    "dispatched": frozenset({"running", "canceled", "failed"}),
    "running": frozenset({"queued", "succeeded", "failed", "canceled"}),
    "succeeded": frozenset(),
    "failed": frozenset({"queued"}),
    "canceled": frozenset({"queued"}),
}


class IllegalTransition(AssertionError):
    """Raised when code asks for a move that the state machine does not have: a bug, never a user's doing."""


def next_version(tx: Transaction, run_id: str) -> int:
    """Count a change of the run; whoever waits for changes of the run sees it."""
    table = schema.runs
    statement = table.update().where(table.c.id == run_id).values(change_seq=table.c.change_seq + 1)
    return int(tx.conn.execute(statement.returning(table.c.change_seq)).scalar_one())


def move(tx: Transaction, task: sa.Row[Any], state: str, reason: str, actor: str, **columns: Any) -> sa.Row[Any]:
    """Move a task to a state and return its new row. Other columns may change along."""
    if state not in ALLOWED[task.state]:
        raise IllegalTransition(f"{task.key}: {task.state} -> {state}")
    reason = plain(reason)
    version = next_version(tx, task.run_id)
    epoch = columns.get("epoch", task.epoch)
    terminal = state in wire.TERMINAL
    values = {
        **columns,
        "state": state,
        "reason": reason,
        "version": version,
        "updated_ns": tx.now_ns,
        "finished_ns": tx.now_ns if terminal else None,
    }
    if terminal or state == "queued":
        values |= {"stop_code": None, "stop_reason": None, "stop_by_ns": None, "deadline_ns": None}
    table = schema.tasks
    row = tx.conn.execute(table.update().where(table.c.key == task.key).values(values).returning(table)).one()
    record(tx, task.key, epoch, state, reason, actor)
    outbox.lifecycle(tx, row, state, reason, epoch, version)
    if terminal:
        outbox.close(tx, task.key, epoch)
        _finish_automatic_run(tx, task.run_id)
    return row


def touch(tx: Transaction, task: sa.Row[Any], **columns: Any) -> sa.Row[Any]:
    """Change other columns of a task; whoever waits for changes sees it."""
    table = schema.tasks
    values = {**columns, "version": next_version(tx, task.run_id), "updated_ns": tx.now_ns}
    return tx.conn.execute(table.update().where(table.c.key == task.key).values(values).returning(table)).one()


def record(tx: Transaction, task: str, epoch: int, state: str, reason: str, actor: str) -> None:
    """Write a line of the timeline."""
    tx.run(
        schema.timeline.insert().values(
            task=task, epoch=epoch, at_ns=tx.now_ns, state=state, reason=plain(reason), actor=actor
        )
    )


def _finish_automatic_run(tx: Transaction, run_id: str) -> None:
    """End a run that nobody drives (a single function, a KFP run) when its last task is terminal."""
    runs, tasks = schema.runs, schema.tasks
    run = tx.one(sa.select(runs).where(runs.c.id == run_id))
    if run is None or not run.automatic or run.state != "running":
        return
    of_run = tasks.c.run_id == run_id
    live = of_run & tasks.c.state.in_(("queued", "dispatched", "running"))
    if tx.conn.execute(sa.select(tasks.c.key).where(live).limit(1)).first() is not None:
        return
    state = "succeeded"
    for bad in ("failed", "canceled"):
        if tx.conn.execute(sa.select(tasks.c.key).where(of_run & (tasks.c.state == bad)).limit(1)).first() is not None:
            state = bad
            break
    ended = {"state": state, "reason": "all tasks ended", "finished_ns": tx.now_ns, "archive_due_ns": archive_due(tx)}
    tx.run(runs.update().where(runs.c.id == run_id).values(ended))


def archive_due(tx: Transaction) -> int:
    """Return when the logs of a run that ends now may move to the store: late lines have arrived by then."""
    return tx.now_ns + round(QUIET_S * 1e9)
