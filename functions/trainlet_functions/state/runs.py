"""Runs: created and finished by the dispatcher that drives them, cancelled and resumed by people."""

from __future__ import annotations

import base64
from typing import Any

import sqlalchemy as sa

from trainlet.core import traces, wire
from trainlet.core.errors import ConflictError, NotFoundError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet_functions.state import admission, dispatchers, outbox, schema, stops, transitions, views
from trainlet_functions.state.database import Transaction, dumps, loads, plain

_TABLE = schema.runs
_PART = 1000  # tasks in one reply about changes


def create(tx: Transaction, project: str, run_id: str, body: wire.RunCreate) -> tuple[wire.RunView, bool]:
    """Create a run, or attach to the one that the same body created; returns (run, created).

    Raises ConflictError when the id is used with another body.
    """
    digest = sha256_hex(canonical_json(body.model_dump(mode="json", exclude={"dispatcher"})))
    if body.dispatcher is not None:
        dispatchers.renew(tx, project, body.dispatcher)
    row = tx.one(sa.select(_TABLE).where(_TABLE.c.id == run_id))
    if row is not None:
        if row.project != project:
            raise ConflictError(f"The run id {run_id!r} is used already. Choose another id.")
        if row.automatic and not row.body_hash and body.graph is None:
            return views.run_view(tx, _say_more(tx, row, body, digest)), False
        if row.body_hash != digest:
            raise ConflictError(
                f"The run id {run_id!r} is used already with {_difference(row, body)}. Choose another id."
            )
        if body.dispatcher is not None and row.dispatcher != body.dispatcher.id:
            _take_over(tx, row, body.dispatcher.id)
        return views.run_view(tx, row), False
    return views.run_view(tx, _insert(tx, project, run_id, body, digest, automatic=body.graph is None)), True


def _say_more(tx: Transaction, row: sa.Row[Any], body: wire.RunCreate, digest: str) -> sa.Row[Any]:
    """Let the first who says more of a run that was made on the fly say it; what it got before stays."""
    values: dict[str, Any] = {
        "pipeline": body.pipeline,
        "body_hash": digest,
        "labels": dumps({**body.labels, **loads(row.labels)}),
    }
    if row.budget_nano is None:
        values["budget_nano"] = body.budget_nano
    if body.dispatcher is not None:
        values["dispatcher"] = body.dispatcher.id
    tx.run(_TABLE.update().where(_TABLE.c.id == row.id).values(values))
    return tx.conn.execute(sa.select(_TABLE).where(_TABLE.c.id == row.id)).one()


def adopt(tx: Transaction, whole: sa.Row[Any], part: str, part_label: str, whole_label: str) -> None:
    """Make a run that its tasks make on the fly a part of another: it has the tags and the own budget of that.

    Raises ConflictError for the run of another project, or one that somebody drives.
    """
    labels = loads(whole.labels)
    inherited = {**{name: value for name, value in labels.items() if name != part_label}, whole_label: whole.id}
    found = tx.one(sa.select(_TABLE).where(_TABLE.c.id == part))
    if found is None:
        body = wire.RunCreate(pipeline=whole.pipeline, labels=inherited, budget_nano=whole.budget_nano)
        _insert(tx, whole.project, part, body, "", automatic=True)
    elif found.project != whole.project or not found.automatic:
        raise ConflictError(f"The run {part} is used already, and not by the pods of Kubeflow Pipelines.")
    else:
        values = {"labels": dumps({**loads(found.labels), **inherited}), "budget_nano": whole.budget_nano}
        tx.run(_TABLE.update().where(_TABLE.c.id == part).values(values))
    tx.run(_TABLE.update().where(_TABLE.c.id == whole.id).values(labels=dumps({**labels, part_label: part})))


def close(tx: Transaction, project: str, run_id: str, state: str) -> None:
    """End an automatic run that waits for tasks, as nothing makes any more; one that has live tasks ends with them."""
    found = tx.one(sa.select(_TABLE).where((_TABLE.c.id == run_id) & (_TABLE.c.project == project)))
    if found is not None and found.state == "running" and found.automatic and not transitions.any_live(tx, run_id):
        end(tx, found, state, transitions.ALL_ENDED)


def _difference(row: sa.Row[Any], body: wire.RunCreate) -> str:
    """Say which part of the body differs from the stored one."""
    before = {
        "pipeline": row.pipeline,
        "graph": loads(row.graph),
        "params": loads(row.params),
        "budget_nano": row.budget_nano,
        "labels": loads(row.labels),
    }
    names = [name for name, value in before.items() if getattr(body, name) != value]
    return f"other {', '.join(names)}" if names else "other content"


def _take_over(tx: Transaction, run: sa.Row[Any], dispatcher: str) -> None:
    """Make a new dispatcher the one that this run and its open tasks depend on."""
    tx.run(_TABLE.update().where(_TABLE.c.id == run.id).values(dispatcher=dispatcher))
    tasks = schema.tasks
    live = (tasks.c.run_id == run.id) & tasks.c.state.in_(("queued", "dispatched", "running"))
    tx.run(tasks.update().where(live).values(dispatcher=dispatcher))


def ensure(tx: Transaction, project: str, run_id: str, pipeline: str) -> None:
    """Make the run of a new task on the fly, or open it again when it had ended for want of tasks.

    Raises ConflictError when the run was cancelled, or was ended by the dispatcher that drives it.
    """
    row = tx.one(sa.select(_TABLE).where(_TABLE.c.id == run_id))
    if row is None:
        _insert(tx, project, run_id, wire.RunCreate(pipeline=pipeline), "", automatic=True)
        return
    if row.project != project:
        raise ConflictError(f"The run id {run_id!r} is used already. Choose another id.")
    if row.state != "running":
        if row.automatic and (row.state != "canceled" or row.reason == transitions.ALL_ENDED):
            reopen(tx, run_id, "")
            return
        raise ConflictError(f"The run {run_id} is {row.state} ({row.reason}); resume it before it gets new tasks.")


def reopen(tx: Transaction, run_id: str, reason: str, **columns: Any) -> None:
    """Make a run that has ended one that runs."""
    opened = {"state": "running", "reason": reason, "finished_ns": None, "error": None, "archive_due_ns": None}
    counted = {"change_seq": _TABLE.c.change_seq + 1}
    this = _TABLE.update().where(_TABLE.c.id == run_id).values({**opened, **columns, **counted})
    for run in tx.conn.execute(this.returning(_TABLE)).all():
        outbox.run_changed(tx, run, "resumed", "running", reason, run.change_seq)


def _insert(
    tx: Transaction, project: str, run_id: str, body: wire.RunCreate, digest: str, *, automatic: bool
) -> sa.Row[Any]:
    values = {
        "id": run_id,
        "project": project,
        "pipeline": body.pipeline,
        "graph": None if body.graph is None else dumps(body.graph),
        "params": dumps(body.params),
        "body_hash": digest,
        "automatic": automatic,
        "state": "running",
        "reason": "",
        "created_ns": tx.now_ns,
        "outputs": "{}",
        "dispatcher": body.dispatcher.id if body.dispatcher else None,
        "budget_nano": body.budget_nano,
        "labels": dumps(body.labels),
        "change_seq": 0,
        "log_seq": 0,
    }
    made = tx.conn.execute(_TABLE.insert().returning(*_TABLE.c), values).one()
    outbox.run_changed(tx, made, "started", "running", "", 0)
    return made


def row(tx: Transaction, project: str, run_id: str) -> sa.Row[Any]:
    """Return the row of a run; raises NotFoundError."""
    found = tx.one(sa.select(_TABLE).where((_TABLE.c.id == run_id) & (_TABLE.c.project == project)))
    if found is None:
        raise NotFoundError(f"Project {project!r} has no run {run_id!r}. `trainlet runs` lists those it has.")
    return found


def labels(tx: Transaction, run_id: str) -> dict[str, str]:
    """Return the tags of a run; none for a run that is not there."""
    found = tx.one(sa.select(_TABLE.c.labels).where(_TABLE.c.id == run_id))
    named = {} if found is None else loads(found.labels)
    return {name: value for name, value in named.items() if name != traces.LABEL}  # the trace is no tag of a bill


def get(tx: Transaction, project: str, run_id: str) -> wire.RunView:
    """Return a run."""
    return views.run_view(tx, row(tx, project, run_id))


def list_(tx: Transaction, project: str, cursor: str | None = None, limit: int = 50) -> wire.Page:
    """Return runs, the newest first."""
    where = _TABLE.c.project == project
    if cursor is not None:
        created_ns, last = _decode(cursor)
        where &= sa.tuple_(_TABLE.c.created_ns, _TABLE.c.id) < sa.tuple_(sa.literal(created_ns), sa.literal(last))
    order = (_TABLE.c.created_ns.desc(), _TABLE.c.id.desc())
    rows = tx.all(sa.select(_TABLE).where(where).order_by(*order).limit(limit + 1))
    items = [view.model_dump(mode="json") for view in views.run_views(tx, rows[:limit])]
    more = rows[limit - 1] if len(rows) > limit else None
    return wire.Page(items=items, next=None if more is None else _encode(more.created_ns, more.id))


def cancel(tx: Transaction, project: str, run_id: str, reason: str) -> wire.RunView:
    """Stop a run: waiting tasks at once, running ones after a checkpoint. A finished run stays as it is."""
    found = row(tx, project, run_id)
    if found.state == "running":
        end(tx, found, "canceled", reason)
        stops.request_all(tx, schema.tasks.c.run_id == run_id, "canceled", reason)
        admission.admit(tx)
    return get(tx, project, run_id)


def end(tx: Transaction, run: sa.Row[Any], state: str, reason: str, **columns: Any) -> None:
    """Move a running run to a terminal state."""
    values = {"state": state, "reason": plain(reason), "finished_ns": tx.now_ns, **columns}
    values["archive_due_ns"] = transitions.archive_due(tx)
    this = (_TABLE.c.id == run.id) & (_TABLE.c.state == "running")
    ended = tx.run(_TABLE.update().where(this).values(values))
    version = transitions.next_version(tx, run.id)
    if ended:
        outbox.run_changed(tx, run, state, state, values["reason"], version)


def resume(tx: Transaction, project: str, run_id: str, body: wire.Resume) -> wire.RunView:
    """Continue a failed or cancelled run: what succeeded stays, the rest is queued again and has its checkpoints.

    A run that succeeded stays as it is; one that runs gets the new dispatcher and budget.
    """
    found = row(tx, project, run_id)
    if found.state == "succeeded":
        return views.run_view(tx, found)
    if body.dispatcher is not None:
        dispatchers.renew(tx, project, body.dispatcher)
    values: dict[str, Any] = {}
    if body.dispatcher is not None:
        values["dispatcher"] = body.dispatcher.id
    if body.budget_nano is not None:
        values["budget_nano"] = body.budget_nano
    reopen(tx, run_id, "resumed", **values)
    owner = body.dispatcher.id if body.dispatcher else None
    tasks = schema.tasks
    for task in tx.all(sa.select(tasks).where(tasks.c.run_id == run_id).order_by(tasks.c.created_ns)):
        resume_task(tx, task, owner)
    admission.admit(tx)
    transitions.next_version(tx, found.id)
    return get(tx, project, run_id)


def resume_task(tx: Transaction, task: sa.Row[Any], owner: str | None) -> None:
    """Queue a task that did not succeed once more, for a new dispatcher; take back the stop of one that runs."""
    if task.state in ("failed", "canceled"):
        fresh = {"failures": 0, "losses": 0, "not_before_ns": tx.now_ns, "error": None, "dispatcher": owner}
        transitions.move(tx, task, "queued", "resumed by the user", "user", **fresh)
    elif task.stop_code is not None:
        stops.withdraw(tx, task, dispatcher=owner, reason="resumed by the user")
    elif task.state != "succeeded":
        transitions.touch(tx, task, dispatcher=owner)


def finish(tx: Transaction, project: str, run_id: str, body: wire.RunFinish) -> wire.RunView:
    """Record the outcome that the dispatcher found; repeating it, or finishing a cancelled run, changes nothing."""
    found = row(tx, project, run_id)
    if found.state == "running":
        error = None if body.error is None else body.error.model_dump_json()
        end(tx, found, body.state, body.reason, outputs=dumps(body.outputs), error=error)
        stops.request_all(tx, schema.tasks.c.run_id == run_id, "canceled", body.reason or f"the run {body.state}")
        admission.admit(tx)
    return get(tx, project, run_id)


def changes(tx: Transaction, project: str, run_id: str, after: int) -> wire.Changes:
    """Return the tasks that changed after a cursor, the first changes first, and the next cursor.

    A run with very many tasks comes in parts: the cursor then names the last change that is in this one. A cursor that
    is ahead of the run was given before the database was restored from a backup: it counts as none.
    """
    found = row(tx, project, run_id)
    after = 0 if after > found.change_seq else after
    tasks = schema.tasks
    where = (tasks.c.run_id == run_id) & (tasks.c.version > after)
    rows = tx.all(sa.select(tasks).where(where).order_by(tasks.c.version).limit(_PART))
    cursor = rows[-1].version if len(rows) == _PART else found.change_seq
    view = views.run_view(tx, found, graph=False)
    return wire.Changes(cursor=cursor, run=view, tasks=views.task_views(tx, rows))


def _encode(created_ns: int, run_id: str) -> str:
    return base64.urlsafe_b64encode(f"{created_ns}:{run_id}".encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[int, str]:
    try:
        created, _, run_id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
        return int(created), run_id
    except ValueError as error:
        raise NotFoundError(f"The cursor {cursor!r} is not one that a listing gave.") from error
