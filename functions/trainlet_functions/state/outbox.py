"""The outbox: CloudEvents that are committed with the change they tell of, and delivered at least once after it.

Two kinds of rows: wake-ups (`function` is set) go to a worker and are closed when the task moves on; lifecycle events
tell the outside what happened. A delivery that fails comes back later, and after many tries it is a dead letter that
can be seen; a task that is still waiting is announced anew by the supervisor, so nothing depends on a dead letter.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import traces
from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, dumps, loads

WAKE_UP = "dev.trainlet.step.requested"
LIFECYCLE = "dev.trainlet.task."
BUDGET = "dev.trainlet.budget."
MAX_TRIES = 30
_TABLE = schema.outbox


def wake_up(tx: Transaction, task: sa.Row[Any], spec: FunctionSpec, epoch: int, number: int) -> None:
    """Announce a dispatched task to its function's workers."""
    data = {
        "task": task.key,
        "epoch": epoch,
        "function": task.function,
        "digest": task.digest,
        "bundle": spec.bundle,
        "project": task.project,
        "traceparent": str(traces.of_task(task.run_id, task.key, loads(task.labels))),
    }
    event_id = f"{task.key}.{epoch}.{number}"
    tx.insert(_TABLE, **_row(tx, event_id, WAKE_UP, task, epoch, task.function, data))


def lifecycle(tx: Transaction, task: sa.Row[Any], state: str, reason: str, epoch: int, version: int) -> None:
    """Tell that a task entered a state."""
    tx.insert(_TABLE, **_lifecycle(tx, task, state, reason, epoch, version))


def lifecycle_all(tx: Transaction, tasks: list[sa.Row[Any]], state: str, reason: str, first_version: int) -> None:
    """Tell that many tasks entered a state, with versions from the first one on."""
    rows = [_lifecycle(tx, task, state, reason, task.epoch, first_version + index) for index, task in enumerate(tasks)]
    tx.conn.execute(_TABLE.insert(), rows)


def budget(tx: Transaction, covers: str, name: str, since_day: int, percent: int, run_id: str) -> None:
    """Tell that a percentage of a budget was reached."""
    kind = BUDGET + ("spent" if percent == 100 else "warned")
    values = {
        "event_id": f"{name}.{since_day}.{percent}.{tx.now_ns}",
        "type": kind,
        "project": covers,
        "task": "",
        "epoch": 0,
    }
    data = {"budget": name, "covers": covers, "percent": percent, "run": run_id}
    tx.insert(_TABLE, **values, data=dumps(data), created_ns=tx.now_ns, due_ns=tx.now_ns, tries=0)


def _lifecycle(tx: Transaction, task: sa.Row[Any], state: str, reason: str, epoch: int, version: int) -> dict[str, Any]:
    data = {"task": task.key, "run": task.run_id, "node": task.node, "state": state, "reason": reason, "epoch": epoch}
    return _row(tx, f"{task.key}.v{version}", LIFECYCLE + state, task, epoch, None, data)


def _row(
    tx: Transaction, event_id: str, kind: str, task: sa.Row[Any], epoch: int, function: str | None, data: dict[str, Any]
) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "type": kind,
        "project": task.project,
        "task": task.key,
        "epoch": epoch,
        "function": function,
        "data": dumps(data),
        "created_ns": tx.now_ns,
        "due_ns": tx.now_ns,
        "tries": 0,
    }


def close(tx: Transaction, task: str, epoch: int) -> None:
    """Take back the wake-ups of an attempt that was claimed or given up."""
    tx.conn.execute(_CLOSE, {"of_task": task, "up_to": epoch, "due_ns": None, "delivered_ns": tx.now_ns})


def due(tx: Transaction, limit: int = 100, *, lifecycle_too: bool = False) -> list[sa.Row[Any]]:
    """Return events whose time has come, the oldest first."""
    where = _TABLE.c.due_ns <= tx.now_ns
    if not lifecycle_too:
        where &= _TABLE.c.function.is_not(None)
    return tx.all(sa.select(_TABLE).where(where).order_by(_TABLE.c.due_ns, _TABLE.c.id).limit(limit))


def next_due_ns(tx: Transaction) -> int | None:
    """Return when the next wake-up is due, or None."""
    return tx.conn.execute(sa.select(sa.func.min(_TABLE.c.due_ns)).where(_TABLE.c.function.is_not(None))).scalar()


def pending(tx: Transaction, task: str, epoch: int) -> bool:
    """Say whether a wake-up of this attempt is still on its way."""
    this = (_TABLE.c.task == task) & (_TABLE.c.epoch == epoch) & _TABLE.c.function.is_not(None)
    return (
        tx.conn.execute(sa.select(_TABLE.c.id).where(this & _TABLE.c.due_ns.is_not(None)).limit(1)).first() is not None
    )


def delivered(tx: Transaction, row_id: int) -> None:
    """Note that somebody acknowledged the event."""
    tx.run(_TABLE.update().where(_TABLE.c.id == row_id).values(due_ns=None, delivered_ns=tx.now_ns))


def failed(tx: Transaction, row: sa.Row[Any], error: str) -> None:
    """Note a failed delivery: try again later (0.1 s doubling to 30 s), or bury it after many tries."""
    tries = row.tries + 1
    pause_ns = min(30_000_000_000, 100_000_000 << min(tries - 1, 9))
    dead = tries >= MAX_TRIES
    tx.run(
        _TABLE.update()
        .where(_TABLE.c.id == row.id)
        .values(
            tries=tries,
            last_error=error[:500],
            due_ns=None if dead else tx.now_ns + pause_ns,
            dead_ns=tx.now_ns if dead else None,
        )
    )


def bury(tx: Transaction, event_id: str, error: str) -> None:
    """Note that an event which was handed on came back as undeliverable."""
    values = {"due_ns": None, "dead_ns": tx.now_ns, "last_error": error[:500]}
    tx.run(_TABLE.update().where(_TABLE.c.event_id == event_id).values(values))


def dead_letters(tx: Transaction, limit: int = 100) -> list[sa.Row[Any]]:
    """Return what could not be delivered, the newest first."""
    where = _TABLE.c.dead_ns.is_not(None)
    return tx.all(sa.select(_TABLE).where(where).order_by(_TABLE.c.dead_ns.desc()).limit(limit))


_OPEN = _TABLE.c.due_ns.is_not(None) & _TABLE.c.function.is_not(None)
_CLOSE = _TABLE.update().where(
    (_TABLE.c.task == sa.bindparam("of_task")) & (_TABLE.c.epoch <= sa.bindparam("up_to")) & _OPEN
)
