"""Admission: which queued tasks are dispatched now, in the order of their creation, and in words why the others wait.

It runs inside the transaction that frees or wants something, so a task that can start never waits for a tick. A task
that does not fit does not block tasks that want another kind of device, but nobody overtakes it for its own kind.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import devices, functions, outbox, schema, transitions
from trainlet_functions.state.database import Transaction

_TABLE = schema.tasks
CPU = "cpu"
_SCAN = 200  # queued tasks looked at in one pass; whoever is behind them waits for those before


def lane(spec: FunctionSpec) -> str:
    """Return what kind of place a function needs; tasks of one lane never overtake each other."""
    return devices.words(spec.resources) or CPU


def admit(tx: Transaction) -> int:
    """Dispatch what fits; returns how many."""
    where = (_TABLE.c.state == "queued") & (_TABLE.c.not_before_ns <= tx.now_ns)
    needed = (_TABLE.c.key, _TABLE.c.project, _TABLE.c.function, _TABLE.c.digest, _TABLE.c.lane, _TABLE.c.reason)
    waiting = tx.all(sa.select(*needed).where(where).order_by(_TABLE.c.created_ns, _TABLE.c.key).limit(_SCAN))
    if not waiting:
        return 0
    blocked: dict[str, str] = {}
    live = _live_by_function(tx)
    free_slots = _free_cpu_slots(tx)
    if free_slots is not None and free_slots <= 0:
        blocked[CPU] = f"waiting for a CPU slot: {tx.capacity.cpu_slots} are busy"
    dispatched = 0
    for task in waiting:
        reason = blocked.get(task.lane)
        if reason is None:
            spec = functions.spec(tx, task.project, task.function, task.digest)
            function = (task.project, task.function)
            if live.get(function, 0) >= spec.max_workers:
                reason = f"waiting for a worker: all {spec.max_workers} of {task.function} are busy"
            else:
                reason = _dispatch(tx, task.key, spec)
                if reason is not None:
                    blocked[task.lane] = reason
        if reason is not None:
            if task.reason != reason:
                transitions.touch(tx, task_row(tx, task.key), reason=reason)
            continue
        dispatched += 1
        live[function] = live.get(function, 0) + 1
        if free_slots is not None and task.lane == CPU:
            free_slots -= 1
            if free_slots <= 0:
                blocked[CPU] = f"waiting for a CPU slot: {tx.capacity.cpu_slots} are busy"
    return dispatched


def task_row(tx: Transaction, key: str) -> sa.Row[Any]:
    """Return a task's whole row."""
    return tx.conn.execute(sa.select(_TABLE).where(_TABLE.c.key == key)).one()


def _dispatch(tx: Transaction, key: str, spec: FunctionSpec) -> str | None:
    """Dispatch one task at its next epoch, or return why it waits."""
    task = task_row(tx, key)
    epoch = task.epoch + 1
    if spec.resources.gpus and tx.capacity.owns_devices:
        given = devices.allocate(tx, spec.resources, key, epoch)
        if isinstance(given, str):
            return given
    reason = "waiting for a worker" if epoch == 1 else f"waiting for a worker, attempt {epoch}"
    announced = {"announced_ns": tx.now_ns, "announcements": 1}
    row = transitions.move(tx, task, "dispatched", reason, "admission", epoch=epoch, **announced)
    outbox.wake_up(tx, row, spec, epoch, 1)
    return None


def _free_cpu_slots(tx: Transaction) -> int | None:
    if tx.capacity.cpu_slots is None:
        return None
    live = _TABLE.c.state.in_(("dispatched", "running")) & (_TABLE.c.lane == CPU)
    used = tx.conn.execute(sa.select(sa.func.count()).select_from(_TABLE).where(live)).scalar_one()
    return tx.capacity.cpu_slots - int(used)


def _live_by_function(tx: Transaction) -> dict[tuple[str, str], int]:
    live = _TABLE.c.state.in_(("dispatched", "running"))
    grouped = sa.select(_TABLE.c.project, _TABLE.c.function, sa.func.count().label("number")).where(live)
    rows = tx.all(grouped.group_by(_TABLE.c.project, _TABLE.c.function))
    return {(row.project, row.function): int(row.number) for row in rows}


def demand(tx: Transaction) -> dict[tuple[str, str], tuple[FunctionSpec, int]]:
    """Return per function how many workers are wanted: running + dispatched tasks, and the spec of the newest."""
    wanted: dict[tuple[str, str], tuple[FunctionSpec, int]] = {}
    for (project, function), count in _live_by_function(tx).items():
        spec = functions.get(tx, project, function).spec
        wanted[project, function] = (spec, min(count, spec.max_workers))
    return wanted
