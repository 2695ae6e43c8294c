"""Stopping tasks from outside: what waits stops at once, what runs is asked to save a checkpoint first.

The worker learns the code in the reply to its heartbeat. When it does not end in time (its lease and the function's
grace), the supervisor ends the attempt for it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet_functions.state import devices, functions, schema, transitions
from trainlet_functions.state.database import Transaction

_TABLE = schema.tasks


def request(tx: Transaction, task: sa.Row[Any], code: str, reason: str) -> sa.Row[Any]:
    """Stop one task; a terminal one, or one that is stopping already, stays as it is."""
    if task.state in ("queued", "dispatched"):
        devices.release(tx, task.key)
        return transitions.move(tx, task, "canceled", reason, code)
    if task.state == "running" and task.stop_code is None:
        grace_s = functions.spec(tx, task.project, task.function, task.digest).grace_s
        by_ns = tx.now_ns + round((tx.limits.lease_s + grace_s) * 1e9)
        return transitions.touch(
            tx, task, stop_code=code, stop_reason=reason, stop_by_ns=by_ns, reason=f"stopping: {reason}"
        )
    return task


def request_all(tx: Transaction, where: sa.ColumnElement[bool], code: str, reason: str) -> int:
    """Stop every task that is not terminal among those that match."""
    live = _TABLE.c.state.in_(("queued", "dispatched", "running"))
    rows = tx.all(sa.select(_TABLE).where(where & live))
    for row in rows:
        request(tx, row, code, reason)
    return len(rows)
