"""Attempts: the claim that decides who runs a task, the lease that keeps it, and every way in which it ends.

The epoch is the fencing token: once epoch e+1 is dispatched, nothing that names e changes anything (invariant T2).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.errors import AccessError
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state import admission, devices, functions, outbox, schema, stops, transitions, views
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.state.problems import FencedAttempt, Taken
from trainlet_functions.state.tokens import new_token, token_hash

MAX_LOSSES = 10  # attempts lost in a row without a new checkpoint before the task fails (T3)
_TASKS = schema.tasks
_TABLE = schema.attempts


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who asks for work: a worker of one function of one project."""

    project: str
    function: str
    worker: str


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """An attempt whose token was checked."""

    task: sa.Row[Any]
    attempt: sa.Row[Any]


def claim(tx: Transaction, worker: WorkerIdentity, key: str, epoch: int, body: wire.ClaimRequest) -> wire.ClaimReply:
    """Give (task, epoch) to a worker. The same worker and nonce again get the same attempt, with a fresh token.

    Raises Taken when somebody else has it, it is over, or the epoch is not the current one; AccessError when the task
    belongs to another function.
    """
    note_worker(tx, worker, body.url, busy=False)
    task = tx.one(sa.select(_TASKS).where((_TASKS.c.key == key) & (_TASKS.c.project == worker.project)))
    if task is None or task.epoch != epoch:
        raise Taken(f"Task {key} is not at epoch {epoch}.")
    if task.function != worker.function:
        raise AccessError(f"A worker of {worker.function!r} cannot run a task of {task.function!r}.")
    if task.state == "running":
        attempt = tx.conn.execute(sa.select(_TABLE).where((_TABLE.c.task == key) & (_TABLE.c.epoch == epoch))).one()
        if attempt.worker == worker.worker and attempt.nonce == body.nonce:
            return _reply(tx, task, loads(attempt.devices))
        raise Taken(f"Task {key} is taken by {attempt.worker}.")
    if task.state != "dispatched":
        raise Taken(f"Task {key} is {task.state}.")
    return _start(tx, worker, task, body)


def claim_next(tx: Transaction, worker: WorkerIdentity, body: wire.ClaimRequest) -> wire.ClaimReply | None:
    """Give the oldest dispatched task of the worker's function, or None."""
    note_worker(tx, worker, body.url, busy=False)
    mine = (_TASKS.c.project == worker.project) & (_TASKS.c.function == worker.function)
    again = (
        sa.select(_TASKS)
        .join(_TABLE, (_TABLE.c.task == _TASKS.c.key) & (_TABLE.c.epoch == _TASKS.c.epoch))
        .where(
            mine & (_TABLE.c.state == "running") & (_TABLE.c.worker == worker.worker) & (_TABLE.c.nonce == body.nonce)
        )
    )
    task = tx.one(again)
    if task is not None:
        held = tx.conn.execute(
            sa.select(_TABLE.c.devices).where((_TABLE.c.task == task.key) & (_TABLE.c.epoch == task.epoch))
        )
        return _reply(tx, task, loads(held.scalar_one()))
    oldest = sa.select(_TASKS).where(mine & (_TASKS.c.state == "dispatched"))
    task = tx.one(oldest.order_by(_TASKS.c.created_ns, _TASKS.c.key).limit(1))
    return None if task is None else _start(tx, worker, task, body)


def _start(tx: Transaction, worker: WorkerIdentity, task: sa.Row[Any], body: wire.ClaimRequest) -> wire.ClaimReply:
    given = devices.held(tx, task.key) if tx.capacity.owns_devices else (body.devices or [])
    spec = functions.spec(tx, task.project, task.function, task.digest)
    tx.run(
        _TABLE.insert().values(
            task=task.key,
            epoch=task.epoch,
            state="running",
            worker=worker.worker,
            nonce=body.nonce,
            token_hash="",
            devices=dumps([device.model_dump(mode="json") for device in given]),
            claimed_ns=tx.now_ns,
            lease_until_ns=_lease_until(tx),
            reason="",
        )
    )
    deadline = None if spec.timeout_s is None else tx.now_ns + round(spec.timeout_s * 1e9)
    reason = f"running on {worker.worker}"
    task = transitions.move(tx, task, "running", reason, worker.worker, deadline_ns=deadline)
    outbox.close(tx, task.key, task.epoch)
    tx.run(schema.workers.update().where(schema.workers.c.id == worker.worker).values(busy=True))
    return _reply(tx, task, [device.model_dump(mode="json") for device in given])


def _reply(tx: Transaction, task: sa.Row[Any], given: list[dict[str, Any]]) -> wire.ClaimReply:
    token = new_token("tla")
    where = (_TABLE.c.task == task.key) & (_TABLE.c.epoch == task.epoch)
    tx.run(_TABLE.update().where(where).values(token_hash=token_hash(token)))
    return wire.ClaimReply(
        task=views.task_view(tx, task),
        spec=functions.spec(tx, task.project, task.function, task.digest),
        args=loads(task.args),
        epoch=task.epoch,
        token=token,
        devices=[wire.Device.model_validate(device) for device in given],
        lease_s=tx.limits.lease_s,
        heartbeat_s=tx.limits.heartbeat_s,
        wall_anchor_ns=tx.now_ns,
        store_url="",
    )


def note_worker(tx: Transaction, worker: WorkerIdentity, url: str | None, *, busy: bool) -> None:
    """Remember that a worker is there and where it takes events."""
    table = schema.workers
    values: dict[str, Any] = {"seen_ns": tx.now_ns, "busy": busy}
    if url is not None:
        values["url"] = url
    if not tx.run(table.update().where(table.c.id == worker.worker).values(values)):
        base = {"id": worker.worker, "project": worker.project, "function": worker.function}
        tx.run(table.insert().values(**base, **values))


def authenticate(tx: Transaction, key: str, epoch: int, token: str) -> AttemptRef:
    """Check the token of an attempt; raises AccessError for a foreign token.

    Whether the attempt is still the current one is for `heartbeat`, `finish` and the logs to decide.
    """
    attempt = tx.one(sa.select(_TABLE).where((_TABLE.c.task == key) & (_TABLE.c.epoch == epoch)))
    if attempt is None or not secrets.compare_digest(attempt.token_hash, token_hash(token)):
        raise AccessError(f"This token is not good for attempt {epoch} of task {key}.")
    task = tx.conn.execute(sa.select(_TASKS).where(_TASKS.c.key == key)).one()
    return AttemptRef(task, attempt)


def current(ref: AttemptRef) -> None:
    """Raise FencedAttempt unless the attempt is running and the task's current one."""
    if ref.attempt.state != "running" or ref.task.epoch != ref.attempt.epoch or ref.task.state != "running":
        raise FencedAttempt(
            f"Attempt {ref.attempt.epoch} of {ref.task.key} is {ref.attempt.state}; the task is {ref.task.state} at epoch "
            f"{ref.task.epoch}. Stop and write nothing more."
        )


def heartbeat(tx: Transaction, ref: AttemptRef, body: wire.HeartbeatRequest) -> wire.HeartbeatReply:
    """Renew the lease, take in usage and news, and say whether to go on. Raises FencedAttempt."""
    current(ref)
    metering.ingest(tx, ref.task.project, _own(ref, body.usage))
    values: dict[str, Any] = {"lease_until_ns": _lease_until(tx)}
    if body.started and ref.attempt.started_ns is None:
        values["started_ns"] = tx.now_ns
    if body.resumed_from_step is not None:
        values["resumed_from_step"] = body.resumed_from_step
    where = (_TABLE.c.task == ref.task.key) & (_TABLE.c.epoch == ref.attempt.epoch)
    tx.run(_TABLE.update().where(where).values(values))
    note_worker(tx, WorkerIdentity(ref.task.project, ref.task.function, body.worker), None, busy=True)
    news = _news(ref, body)
    task = transitions.touch(tx, ref.task, **news) if news or "started_ns" in values else ref.task
    _check_budget(tx, task)
    stop = tx.conn.execute(sa.select(_TASKS.c.stop_code, _TASKS.c.stop_reason).where(_TASKS.c.key == task.key)).one()
    if stop.stop_code is None:
        return wire.HeartbeatReply(lease_s=tx.limits.lease_s)
    return wire.HeartbeatReply(
        directive="stop", code=stop.stop_code, reason=stop.stop_reason, lease_s=tx.limits.lease_s
    )


def finish(tx: Transaction, ref: AttemptRef, body: wire.FinishRequest) -> wire.TaskView:
    """End the attempt. The same outcome again changes nothing; after a newer epoch it raises FencedAttempt."""
    if ref.attempt.outcome == body.outcome:
        return views.task_view(tx, ref.task)
    current(ref)
    metering.ingest(tx, ref.task.project, _own(ref, body.usage))
    news = _news(ref, body)
    task = transitions.touch(tx, ref.task, **news) if news else ref.task
    stop = task.stop_code
    if body.outcome == "succeeded":
        _end(tx, ref, "succeeded", "finished", outcome=body.outcome)
        task = transitions.move(
            tx, task, "succeeded", "finished", ref.attempt.worker, output=dumps(body.output), error=None
        )
    elif stop == "timeout":
        spec = functions.spec(tx, task.project, task.function, task.digest)
        error = wire.ErrorInfo(
            kind="timeout",
            type="Timeout",
            message=f"The attempt ran longer than timeout={spec.timeout_s:g} s.",
            hint="Raise timeout= on the step; run.resume() continues from the last checkpoint.",
        )
        _end(tx, ref, "failed", "timeout", error, outcome=body.outcome)
        task = _retry_or_fail(tx, task, error, ref.attempt.worker)
    elif stop is not None:
        _end(tx, ref, "canceled", task.stop_reason, outcome=body.outcome)
        task = transitions.move(tx, task, "canceled", task.stop_reason, stop)
    elif body.outcome == "failed":
        error = body.error or wire.ErrorInfo(kind="user", message=body.reason or "the attempt failed")
        _end(tx, ref, "failed", error.message[:200], error, outcome=body.outcome)
        task = _retry_or_fail(tx, task, error, ref.attempt.worker)
    elif body.outcome == "canceled":
        _end(tx, ref, "canceled", body.reason, outcome=body.outcome)
        task = transitions.move(tx, task, "canceled", body.reason or "ended by its worker", ref.attempt.worker)
    else:
        _end(tx, ref, "preempted", body.reason or "preempted", outcome=body.outcome)
        task = transitions.move(
            tx, task, "queued", body.reason or "preempted", ref.attempt.worker, not_before_ns=tx.now_ns
        )
    admission.admit(tx)
    return views.task_view(tx, tx.conn.execute(sa.select(_TASKS).where(_TASKS.c.key == task.key)).one())


def lost(tx: Transaction, key: str, epoch: int, reason: str) -> None:
    """Give up an attempt whose worker is gone; the task is dispatched again, or ends when it was stopping anyway."""
    attempt = tx.one(sa.select(_TABLE).where((_TABLE.c.task == key) & (_TABLE.c.epoch == epoch)))
    task = tx.one(sa.select(_TASKS).where(_TASKS.c.key == key))
    if attempt is None or task is None or attempt.state != "running" or task.state != "running":
        return
    ref = AttemptRef(task, attempt)
    metering.close_stale(tx, key, epoch)
    _end(tx, ref, "lost", reason)
    progressed = any(note["epoch"] == epoch for note in loads(task.checkpoints))
    losses = 1 if progressed else task.losses + 1
    if task.stop_code is not None and task.stop_code != "timeout":
        transitions.move(tx, task, "canceled", task.stop_reason, task.stop_code)
    elif losses >= MAX_LOSSES:
        error = wire.ErrorInfo(
            kind="lost",
            message=f"The worker was lost {losses} times in a row without a new checkpoint; the last time: {reason}.",
            hint="Look at the last log lines and at the memory of the step; run.resume() tries again.",
        )
        transitions.move(tx, task, "failed", error.message, "supervisor", error=error.model_dump_json())
    else:
        pause_ns = 0 if losses == 1 else min(30_000_000_000, 250_000_000 << min(losses - 2, 7))
        again = f"{reason}; trying again from the last checkpoint"
        transitions.move(tx, task, "queued", again, "supervisor", losses=losses, not_before_ns=tx.now_ns + pause_ns)
    admission.admit(tx)


def worker_gone(tx: Transaction, worker: str, reason: str) -> list[str]:
    """Give up everything a dead worker had; returns the keys of its tasks."""
    rows = tx.all(sa.select(_TABLE).where((_TABLE.c.worker == worker) & (_TABLE.c.state == "running")))
    for attempt in rows:
        lost(tx, attempt.task, attempt.epoch, reason)
    tx.run(schema.workers.delete().where(schema.workers.c.id == worker))
    return [attempt.task for attempt in rows]


def _retry_or_fail(tx: Transaction, task: sa.Row[Any], error: wire.ErrorInfo, actor: str) -> sa.Row[Any]:
    retries = functions.spec(tx, task.project, task.function, task.digest).retries
    failures = task.failures + 1
    columns = {"failures": failures, "error": error.model_dump_json()}
    if failures > retries.times:
        return transitions.move(tx, task, "failed", error.message[:500], actor, **columns)
    delay_s = retries.delay_before(failures)
    reason = f"failed ({error.message[:200]}); retry {failures} of {retries.times} in {delay_s:g} s"
    return transitions.move(
        tx, task, "queued", reason, actor, not_before_ns=tx.now_ns + round(delay_s * 1e9), **columns
    )


def _end(
    tx: Transaction,
    ref: AttemptRef,
    state: str,
    reason: str,
    error: wire.ErrorInfo | None = None,
    *,
    outcome: str | None = None,
) -> None:
    """Close an attempt and give back what it held. `outcome` is what the worker said, to know a repeated finish by."""
    where = (_TABLE.c.task == ref.task.key) & (_TABLE.c.epoch == ref.attempt.epoch)
    text = None if error is None else error.model_dump_json()
    tx.run(
        _TABLE.update()
        .where(where)
        .values(state=state, outcome=outcome, reason=reason, error=text, finished_ns=tx.now_ns)
    )
    tx.run(schema.workers.update().where(schema.workers.c.id == ref.attempt.worker).values(busy=False))
    devices.release(tx, ref.task.key)


def _lease_until(tx: Transaction) -> int:
    return tx.now_ns + round(tx.limits.lease_s * 1e9)


def _own(ref: AttemptRef, usage: list[wire.LeaseEvent]) -> list[wire.LeaseEvent]:
    """Keep the usage events of this very attempt; a worker cannot write into another's ledger."""
    return [event for event in usage if event.task == ref.task.key and event.epoch == ref.attempt.epoch]


def _news(ref: AttemptRef, body: wire.HeartbeatRequest | wire.FinishRequest) -> dict[str, Any]:
    """Return the task's columns that the worker's news change."""
    news: dict[str, Any] = {}
    if body.progress is not None:
        news["progress"] = dumps(body.progress)
    if body.metrics:
        news["metrics"] = dumps({**loads(ref.task.metrics), **body.metrics})
    if body.checkpoints:
        known = {(note["step"], note["epoch"]): note for note in loads(ref.task.checkpoints)}
        known |= {(note.step, note.epoch): note.model_dump(mode="json") for note in body.checkpoints}
        news["checkpoints"] = dumps(list(known.values())[-100:])
    return news


def _check_budget(tx: Transaction, task: sa.Row[Any]) -> None:
    """Ask the task to stop when its run has spent what it may."""
    limit = tx.conn.execute(sa.select(schema.runs.c.budget_nano).where(schema.runs.c.id == task.run_id)).scalar()
    if limit is None or task.stop_code is not None:
        return
    spent = reports.spent_nano(tx, task.project, task.run_id)
    if spent >= limit:
        reason = (
            f"the budget of the run is spent ({spent / 1e9:.4f} of {limit / 1e9:.4f}); resume it with a higher budget"
        )
        stops.request(tx, task, "budget", reason)
