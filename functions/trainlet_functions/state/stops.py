"""Stopping tasks from outside: what waits stops at once, what runs is asked to save a checkpoint first.

The worker learns the code in the reply to its heartbeat. When it does not end in time (its lease and the function's
grace), the supervisor ends the attempt for it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.state import devices, functions, schema, transitions
from trainlet_functions.state.database import Transaction, plain

_TABLE = schema.tasks
OF_RUN = "the budget of the run"
_HINTS = {
    "dispatcher_lost": "run.resume() continues from the last checkpoint.",
    "canceled": "run.resume() continues from the last checkpoint.",
}


def error(tx: Transaction, run_id: str, code: str, reason: str) -> str:
    """Return the error of a task that was stopped, as JSON for its column; its hint is the line that goes on."""
    message = plain(reason)
    if code != "budget":
        hint = _HINTS.get(code, "")
        return wire.ErrorInfo(kind="canceled", type=code, message=message, hint=hint).model_dump_json()
    hint = _goes_on(tx, run_id, reason)
    return wire.ErrorInfo(kind="budget", type="BudgetReached", message=message, hint=hint).model_dump_json()


def _goes_on(tx: Transaction, run_id: str, reason: str) -> str:
    """Return the line that resumes a run which has reached a budget."""
    own = tx.conn.execute(sa.select(schema.runs.c.budget_nano).where(schema.runs.c.id == run_id)).scalar()
    if reason.startswith(OF_RUN) and own is not None:
        sum_ = f"{own * 2 / 1e9:.4f}".rstrip("0").rstrip(".")
        return f'Go on from the last checkpoint: trainlet resume {run_id} --budget "{sum_} {tx.prices.currency}"'
    return (
        "`trainlet budgets` shows what is left. When there is room again, go on from the last checkpoint: "
        f"trainlet resume {run_id}"
    )


def request(tx: Transaction, task: sa.Row[Any], code: str, reason: str) -> sa.Row[Any]:
    """Stop one task; a terminal one, or one that is stopping already, stays as it is.

    A timeout alone may be retried, so whatever else stops the task takes its place.
    """
    if task.state in ("queued", "dispatched"):
        devices.release(tx, task.key)
        return transitions.move(tx, task, "canceled", reason, code, error=error(tx, task.run_id, code, reason))
    if task.state != "running" or (task.stop_code is not None and (task.stop_code != "timeout" or code == "timeout")):
        return task
    by_ns = task.stop_by_ns
    if by_ns is None:
        by_ns = _deadline_ns(tx, task)
    words = f"stopping: {reason}"
    return transitions.touch(tx, task, stop_code=code, stop_reason=plain(reason), stop_by_ns=by_ns, reason=plain(words))


def extend_all(tx: Transaction) -> None:
    """Give everybody who is stopping all of the time for it, from now on."""
    for task in tx.all(sa.select(_TABLE).where((_TABLE.c.state == "running") & _TABLE.c.stop_by_ns.is_not(None))):
        tx.run(_TABLE.update().where(_TABLE.c.key == task.key).values(stop_by_ns=_deadline_ns(tx, task)))


def withdraw(tx: Transaction, task: sa.Row[Any], **columns: Any) -> sa.Row[Any]:
    """Take a stop back: somebody waits for the task again. A worker that was told already hands it back."""
    return transitions.touch(tx, task, stop_code=None, stop_reason=None, stop_by_ns=None, **columns)


def request_all(tx: Transaction, where: sa.ColumnElement[bool], code: str, reason: str) -> int:
    """Stop every task that is not terminal among those that match."""
    live = _TABLE.c.state.in_(("queued", "dispatched", "running"))
    rows = tx.all(sa.select(_TABLE).where(where & live))
    waiting: dict[str, list[sa.Row[Any]]] = {}
    for row in rows:
        if row.state == "running":
            request(tx, row, code, reason)
        else:
            waiting.setdefault(row.run_id, []).append(row)
            if row.state == "dispatched":
                devices.release(tx, row.key)
    for run_id, of_run in waiting.items():
        transitions.move_all(tx, of_run, "canceled", reason, code, error=error(tx, run_id, code, reason))
    return len(rows)


def _deadline_ns(tx: Transaction, task: sa.Row[Any]) -> int:
    """A worker hears of the stop within a lease, and then has the function's grace."""
    grace_s = functions.spec(tx, task.project, task.function, task.digest).grace_s
    return tx.now_ns + round((tx.limits.lease_s + grace_s) * 1e9)
