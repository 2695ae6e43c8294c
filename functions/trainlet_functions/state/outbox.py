"""The outbox: CloudEvents that are committed with the change they tell of, and delivered at least once after it.

Two kinds of rows: wake-ups (`function` is set) go to a worker and are closed when the task moves on; news tell of what
happened, and are handed to sinks and triggers (`trainlet_functions.sinks`). A delivery that fails comes back later, and after
many tries it is a dead letter that can be seen; a task that is still waiting is announced anew by the supervisor, so
nothing depends on a dead letter.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import lifecycle as told
from trainlet.core import traces, wire
from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, dumps, loads

WAKE_UP = "dev.trainlet.step.requested"
MAX_TRIES = 30
KEPT_S = 7 * 24 * 3600.0  # how long a row stays that is of no more use
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


def run_changed(tx: Transaction, run: sa.Row[Any], kind: str, state: str, reason: str, version: int) -> None:
    """Tell that a run started, went on, or ended."""
    labels = {name: value for name, value in loads(run.labels).items() if name != traces.LABEL}
    data = {"run": run.id, "pipeline": run.pipeline, "state": state, "reason": reason, "tags": labels}
    about = {"project": run.project, "task": run.id, "epoch": 0}
    tx.insert(_TABLE, **_base(tx, f"{run.id}:v{version}", told.RUN + kind, about, None, data))


def checkpoints(tx: Transaction, task: sa.Row[Any], notes: list[wire.CheckpointNote]) -> None:
    """Tell of checkpoints that were not known before; of the best one so far once more, as that."""
    rows: dict[str, dict[str, Any]] = {}
    for note in notes:
        data = {"task": task.key, "run": task.run_id, "node": task.node, **note.model_dump(mode="json")}
        for mark, kind in (("c", told.CHECKPOINT), *([("b", told.BEST)] if note.best else [])):
            event_id = f"{task.key}:{mark}{note.epoch}.{note.step}"
            rows[event_id] = _row(tx, event_id, kind, task, note.epoch, None, data)
    for row in tx.all(sa.select(_TABLE.c.event_id).where(_TABLE.c.event_id.in_(list(rows)))):
        del rows[row.event_id]
    if rows:
        tx.conn.execute(_TABLE.insert(), list(rows.values()))


def lifecycle_all(tx: Transaction, tasks: list[sa.Row[Any]], state: str, reason: str, first_version: int) -> None:
    """Tell that many tasks entered a state, with versions from the first one on."""
    rows = [_lifecycle(tx, task, state, reason, task.epoch, first_version + index) for index, task in enumerate(tasks)]
    tx.conn.execute(_TABLE.insert(), rows)


def budget(tx: Transaction, covers: str, name: str, since_day: int, percent: int, run_id: str) -> None:
    """Tell that a percentage of a budget was reached."""
    data = {"budget": name, "covers": covers, "percent": percent, "run": run_id}
    about = {"project": covers, "task": name, "epoch": 0}
    event_id = f"{name}.{since_day}.{percent}.{tx.now_ns}"
    tx.insert(_TABLE, **_base(tx, event_id, told.BUDGET + ("spent" if percent == 100 else "warned"), about, None, data))


def _lifecycle(tx: Transaction, task: sa.Row[Any], state: str, reason: str, epoch: int, version: int) -> dict[str, Any]:
    data = {"task": task.key, "run": task.run_id, "node": task.node, "state": state, "reason": reason, "epoch": epoch}
    return _row(tx, f"{task.key}.v{version}", told.TASK + state, task, epoch, None, data)


def _row(
    tx: Transaction, event_id: str, kind: str, task: sa.Row[Any], epoch: int, function: str | None, data: dict[str, Any]
) -> dict[str, Any]:
    about = {"project": task.project, "task": task.key, "epoch": epoch}
    return _base(tx, event_id, kind, about, function, data)


def _base(
    tx: Transaction, event_id: str, kind: str, about: dict[str, Any], function: str | None, data: dict[str, Any]
) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "type": kind,
        **about,
        "function": function,
        "data": dumps(data),
        "created_ns": tx.now_ns,
        "due_ns": tx.now_ns,
        "tries": 0,
    }


def close(tx: Transaction, task: str, epoch: int) -> None:
    """Take back the wake-ups of an attempt that was claimed or given up."""
    tx.conn.execute(_CLOSE, {"of_task": task, "up_to": epoch, "due_ns": None, "delivered_ns": tx.now_ns})


def due(tx: Transaction, limit: int = 100) -> list[sa.Row[Any]]:
    """Return wake-ups whose time has come, the oldest first."""
    where = (_TABLE.c.due_ns <= tx.now_ns) & _TABLE.c.function.is_not(None)
    return tx.all(sa.select(_TABLE).where(where).order_by(_TABLE.c.due_ns, _TABLE.c.id).limit(limit))


def news(tx: Transaction, limit: int = 500) -> list[sa.Row[Any]]:
    """Return what happened and was not handed on yet, the oldest first."""
    where = (_TABLE.c.due_ns <= tx.now_ns) & _TABLE.c.function.is_(None)
    return tx.all(sa.select(_TABLE).where(where).order_by(_TABLE.c.due_ns, _TABLE.c.id).limit(limit))


def forget(tx: Transaction, limit: int = 500) -> int:
    """Forget the oldest rows that are of no more use: none that is due, dead, or on its way to a sink. Returns how many."""
    letters = schema.letters
    wanted = sa.select(letters.c.number).where(letters.c.event == _TABLE.c.id).exists()
    useless = _TABLE.c.due_ns.is_(None) & _TABLE.c.dead_ns.is_(None) & ~wanted
    chosen = sa.select(_TABLE.c.id, _TABLE.c.created_ns).where(useless).order_by(_TABLE.c.id).limit(limit)
    ids = [row.id for row in tx.all(chosen) if row.created_ns < tx.now_ns - round(KEPT_S * 1e9)]
    if ids:
        tx.run(_TABLE.delete().where(_TABLE.c.id.in_(ids)))
    return len(ids)


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
