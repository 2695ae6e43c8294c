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
ALL_ENDED = "all tasks ended"
"""Why an automatic run ended by itself; a new task opens it again."""
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


def next_version(tx: Transaction, run_id: str, count: int = 1) -> int:
    """Count changes of the run and return the last number; whoever waits for changes of the run sees them."""
    return int(tx.conn.execute(_COUNT, {"this_run": run_id, "more": count}).one().change_seq)


def move(tx: Transaction, task: sa.Row[Any], state: str, reason: str, actor: str, **columns: Any) -> sa.Row[Any]:
    """Move a task to a state and return its new row. Other columns may change along."""
    _check(task, state)
    reason = plain(reason)
    run = tx.conn.execute(_COUNT, {"this_run": task.run_id, "more": 1}).one()
    epoch = columns.get("epoch", task.epoch)
    values = {**_values(tx, state, reason), **columns, "version": run.change_seq, "this_key": task.key}
    row = tx.conn.execute(_UPDATE, values).one()
    record(tx, task.key, epoch, state, reason, actor)
    outbox.lifecycle(tx, row, state, reason, epoch, run.change_seq)
    if state in wire.TERMINAL:
        if task.state == "dispatched":
            outbox.close(tx, task.key, epoch)
        if run.automatic and run.state == "running":
            _finish_automatic_run(tx, task.run_id)
    return row


def move_all(tx: Transaction, rows: list[sa.Row[Any]], state: str, reason: str, actor: str, **columns: Any) -> None:
    """Move many waiting tasks of one run to a terminal state: the same as `move` for each, in a few statements."""
    if not rows:
        return
    for task in rows:
        _check(task, state)
    reason, run_id = plain(reason), rows[0].run_id
    first = next_version(tx, run_id, len(rows)) - len(rows) + 1
    values = {**_values(tx, state, reason), **columns}
    updates = [{**values, "version": first + index, "this_key": task.key} for index, task in enumerate(rows)]
    tx.conn.execute(_UPDATE_MANY, updates)
    about = {"at_ns": tx.now_ns, "state": state, "reason": reason, "actor": actor}
    tx.conn.execute(schema.timeline.insert(), [{"task": task.key, "epoch": task.epoch, **about} for task in rows])
    outbox.lifecycle_all(tx, rows, state, reason, first)
    for task in rows:
        if task.state == "dispatched":
            outbox.close(tx, task.key, task.epoch)
    run = tx.conn.execute(
        sa.select(schema.runs.c.automatic, schema.runs.c.state).where(schema.runs.c.id == run_id)
    ).one()
    if run.automatic and run.state == "running":
        _finish_automatic_run(tx, run_id)


def _check(task: sa.Row[Any], state: str) -> None:
    if state not in ALLOWED[task.state]:
        raise IllegalTransition(f"{task.key}: {task.state} -> {state}")


def _values(tx: Transaction, state: str, reason: str) -> dict[str, Any]:
    """Return the columns that every move to a state sets."""
    ended = state in wire.TERMINAL
    values = {"state": state, "reason": reason, "updated_ns": tx.now_ns, "finished_ns": tx.now_ns if ended else None}
    if ended or state == "queued":
        values |= {"stop_code": None, "stop_reason": None, "stop_by_ns": None, "deadline_ns": None}
    return values


def touch(tx: Transaction, task: sa.Row[Any], **columns: Any) -> sa.Row[Any]:
    """Change other columns of a task; whoever waits for changes sees it."""
    counted = {"version": next_version(tx, task.run_id), "updated_ns": tx.now_ns, "this_key": task.key}
    return tx.conn.execute(_UPDATE, {**columns, **counted}).one()


def record(tx: Transaction, task: str, epoch: int, state: str, reason: str, actor: str) -> None:
    """Write a line of the timeline."""
    line = {"task": task, "epoch": epoch, "at_ns": tx.now_ns, "state": state, "reason": plain(reason), "actor": actor}
    tx.insert(schema.timeline, **line)


def any_live(tx: Transaction, run_id: str) -> bool:
    """Say whether a run has tasks that have not ended."""
    return tx.conn.execute(_ANY_LIVE, {"of_run": run_id}).first() is not None


def _finish_automatic_run(tx: Transaction, run_id: str) -> None:
    """End a run that nobody drives (a single function, a KFP run) when its last task is terminal."""
    if any_live(tx, run_id):
        return
    states = tx.conn.execute(_STATES, {"of_run": run_id}).scalars().all()
    state = next((bad for bad in ("failed", "canceled") if bad in states), "succeeded")
    ended = {"state": state, "reason": ALL_ENDED, "finished_ns": tx.now_ns, "archive_due_ns": archive_due(tx)}
    run = tx.conn.execute(_END, {**ended, "this_run": run_id}).one()
    outbox.run_changed(tx, run, state, state, ALL_ENDED, next_version(tx, run_id))


def archive_due(tx: Transaction) -> int:
    """Return when the logs of a run that ends now may move to the store: late lines have arrived by then."""
    return tx.now_ns + round(QUIET_S * 1e9)


_RUNS, _TASKS = schema.runs, schema.tasks
_COUNT = (
    _RUNS.update()
    .where(_RUNS.c.id == sa.bindparam("this_run"))
    .values(change_seq=_RUNS.c.change_seq + sa.bindparam("more", type_=sa.BigInteger))
    .returning(_RUNS.c.change_seq, _RUNS.c.automatic, _RUNS.c.state)
)
_END = _RUNS.update().where(_RUNS.c.id == sa.bindparam("this_run")).returning(_RUNS)
_STATES = sa.select(_TASKS.c.state).where(_TASKS.c.run_id == sa.bindparam("of_run")).distinct()
_UPDATE_MANY = _TASKS.update().where(_TASKS.c.key == sa.bindparam("this_key"))
_UPDATE = _UPDATE_MANY.returning(_TASKS)
_LIVE = _TASKS.c.state.in_(("queued", "dispatched", "running"))
_ANY_LIVE = sa.select(_TASKS.c.key).where((_TASKS.c.run_id == sa.bindparam("of_run")) & _LIVE).limit(1)
