"""Tasks: created once by key, attached to by everybody who says the same, pinned to one version of the code."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import tags, traces, wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import ConflictError, NotFoundError, UserError
from trainlet.core.models import sha256_hex
from trainlet_functions.state import (
    admission,
    devices,
    dispatchers,
    functions,
    outbox,
    runs,
    schema,
    stops,
    transitions,
    views,
)
from trainlet_functions.state.database import Transaction, dumps, loads, plain

_TABLE = schema.tasks
_BY_KEY = sa.select(_TABLE).where(_TABLE.c.key == sa.bindparam("this_key"))
_INSERT = _TABLE.insert().returning(_TABLE)


def create(
    tx: Transaction, project: str, key: str, body: wire.TaskCreate, trace: traces.Trace | None = None
) -> tuple[wire.TaskView, bool]:
    """Create a task, or attach to it; returns (task, created). A new dispatcher takes it over.

    `trace` is the caller's; it becomes a label, and is no part of what a second creation is compared with.

    Raises ConflictError for another body under the same key, NotFoundError for a function that is not registered,
    UserError for devices that this machine can never give.
    """
    digest = _body_hash(body)
    if body.dispatcher is not None:
        dispatchers.renew(tx, project, body.dispatcher)
    found = tx.conn.execute(_BY_KEY, {"this_key": key}).one_or_none()
    if found is not None:
        return _attach(tx, project, found, body, digest), False
    spec = functions.spec(tx, project, body.function, body.digest)
    if tx.capacity.owns_devices:
        never = devices.fits_ever(tx, spec.resources)
        if never is not None:
            raise UserError(f"Task {key}: {never}. Ask for fewer devices, or set TRAINLET_VIRTUAL_GPUS.")
    runs.ensure(tx, project, body.run_id, plain(body.node, 200))
    tags.merged(runs.labels(tx, body.run_id), spec.tags, body.labels)  # raises when a bill could not hold them all
    task = tx.conn.execute(
        _INSERT,
        {
            "key": key,
            "project": project,
            "run_id": body.run_id,
            "node": plain(body.node, 200),
            "function": body.function,
            "digest": body.digest,
            "args": dumps(body.args),
            "labels": dumps({**body.labels, **({traces.LABEL: str(trace)} if trace else {})}),
            "body_hash": digest,
            "dispatcher": body.dispatcher.id if body.dispatcher else None,
            "state": "queued",
            "reason": "created",
            "epoch": 0,
            "version": transitions.next_version(tx, body.run_id),
            "created_ns": tx.now_ns,
            "updated_ns": tx.now_ns,
            "metrics": "{}",
            "checkpoints": "[]",
            "failures": 0,
            "losses": 0,
            "not_before_ns": tx.now_ns,
            "announced_ns": 0,
            "announcements": 0,
            "gpu": bool(spec.resources.gpus),
            "lane": admission.lane(project, body.function, body.digest),
        },
    ).one()
    transitions.record(tx, key, 0, "queued", "created", "dispatcher")
    outbox.lifecycle(tx, task, "queued", "created", 0, task.version)
    admission.admit(tx)
    task = row(tx, project, key)
    if task.reason == "created":
        task = transitions.touch(tx, task, reason=admission.behind(body.function))
    return views.task_view(tx, task), True


def _body_hash(body: wire.TaskCreate) -> str:
    """Return what must be equal for a second creation to attach: everything but who waits."""
    return sha256_hex(dumps(body.model_dump(mode="json", exclude={"dispatcher"}), sort_keys=True).encode())


def _attach(tx: Transaction, project: str, found: sa.Row[Any], body: wire.TaskCreate, digest: str) -> wire.TaskView:
    if found.project != project:
        raise ConflictError(f"The task key {found.key!r} is used already. Use another key.")
    if found.body_hash != digest:
        raise ConflictError(
            f"The task key {found.key!r} is used already with {_difference(found, body)}. Use another key."
        )
    if body.dispatcher is not None and found.dispatcher != body.dispatcher.id:
        if found.stop_code == "dispatcher_lost":
            stops.withdraw(tx, found, dispatcher=body.dispatcher.id, reason="somebody waits for it again")
        else:
            tx.run(_TABLE.update().where(_TABLE.c.key == found.key).values(dispatcher=body.dispatcher.id))
    return get(tx, project, found.key)


def _difference(found: sa.Row[Any], body: wire.TaskCreate) -> str:
    """Say which part of the body differs from the stored one."""
    before = {
        "run_id": found.run_id,
        "node": found.node,
        "function": found.function,
        "digest": found.digest,
        "args": loads(found.args),
        "labels": labels(found),
    }
    names = [name for name, value in before.items() if getattr(body, name) != value]
    return f"other {', '.join(names)}" if names else "other content"


def row(tx: Transaction, project: str, key: str) -> sa.Row[Any]:
    """Return the row of a task; raises NotFoundError."""
    found = tx.conn.execute(_BY_KEY, {"this_key": key}).one_or_none()
    if found is None or found.project != project:
        raise NotFoundError(f"Project {project!r} has no task {key!r}.")
    return found


def labels(task: sa.Row[Any]) -> dict[str, str]:
    """Return the tags that a task was created with."""
    return {name: value for name, value in loads(task.labels).items() if name != traces.LABEL}


def get(tx: Transaction, project: str, key: str) -> wire.TaskView:
    """Return a task with its attempts."""
    return views.task_view(tx, row(tx, project, key))


def cancel(tx: Transaction, project: str, key: str, reason: str) -> wire.TaskView:
    """Stop a task: at once when it waits, after a checkpoint when it runs; a terminal one stays as it is."""
    stops.request(tx, row(tx, project, key), "canceled", reason)
    admission.admit(tx)
    return get(tx, project, key)


def resume(tx: Transaction, project: str, key: str, body: wire.Resume) -> wire.TaskView:
    """Continue one failed or cancelled task from its checkpoint; one that succeeded stays as it is."""
    found = row(tx, project, key)
    if found.state == "succeeded":
        return views.task_view(tx, found)
    if body.dispatcher is not None:
        dispatchers.renew(tx, project, body.dispatcher)
    run = runs.row(tx, project, found.run_id)
    columns = {} if body.budget_nano is None else {"budget_nano": body.budget_nano}
    if run.state != "running" or columns:
        runs.reopen(tx, found.run_id, "", **columns)
    runs.resume_task(tx, found, body.dispatcher.id if body.dispatcher else None)
    admission.admit(tx)
    return get(tx, project, key)


def timeline(tx: Transaction, project: str, key: str) -> list[wire.TimelineEntry]:
    """Return every state that a task has had, the oldest first."""
    row(tx, project, key)
    table = schema.timeline
    return [
        wire.TimelineEntry(at=rfc3339(one.at_ns), epoch=one.epoch, state=one.state, reason=one.reason, actor=one.actor)
        for one in tx.all(sa.select(table).where(table.c.task == key).order_by(table.c.id))
    ]
