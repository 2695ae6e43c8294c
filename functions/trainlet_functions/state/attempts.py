"""Attempts: the lease that keeps a task with its worker, and every way in which it ends.

The epoch is the fencing token: once epoch e+1 is dispatched, nothing that names e changes anything (invariant T2).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.errors import AccessError
from trainlet.core.samples import DeviceSample
from trainlet.core.specs import FunctionSpec
from trainlet_functions.metering import samples
from trainlet_functions.state import (
    admission,
    devices,
    functions,
    funds,
    ledger,
    metrics,
    outbox,
    schema,
    stops,
    transitions,
    views,
)
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.state.problems import FencedAttempt
from trainlet_functions.state.tokens import token_hash

MAX_LOSSES = 10  # attempts lost or preempted in a row without a new checkpoint before the task fails (T3)
_TASKS = schema.tasks
_TABLE = schema.attempts
_THIS = (_TABLE.c.task == sa.bindparam("this_key")) & (_TABLE.c.epoch == sa.bindparam("this_epoch"))
OF_EPOCH = sa.select(_TABLE).where(_THIS)
_UPDATE = _TABLE.update().where(_THIS)
OF_KEY = sa.select(_TASKS).where(_TASKS.c.key == sa.bindparam("this_key"))
_WORKER = schema.workers.update().where(
    (schema.workers.c.project == sa.bindparam("in_project")) & (schema.workers.c.id == sa.bindparam("this_id"))
)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who asks for work: a worker of one function of one project."""

    project: str
    function: str
    worker: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """An attempt whose token was checked."""

    task: sa.Row[Any]
    attempt: sa.Row[Any]


def change(tx: Transaction, key: str, epoch: int, values: dict[str, Any]) -> None:
    """Change columns of an attempt."""
    tx.conn.execute(_UPDATE, {**values, "this_key": key, "this_epoch": epoch})


def note_worker(tx: Transaction, worker: WorkerIdentity, url: str | None, *, busy: bool) -> None:
    """Remember that a worker is there and where it takes events."""
    table = schema.workers
    values: dict[str, Any] = {"seen_ns": tx.now_ns, "busy": busy, "silent": False, "function": worker.function}
    if url is not None:
        values["url"] = url
    if worker.revision is not None:
        values["revision"] = worker.revision
    this = {"in_project": worker.project, "this_id": worker.worker}
    if not tx.run(_WORKER, {**values, **this}):
        tx.insert(table, id=worker.worker, project=worker.project, **values)


def authenticate(tx: Transaction, key: str, epoch: int, token: str) -> AttemptRef:
    """Check the token of an attempt; raises AccessError for a foreign token.

    Whether the attempt is still the current one is for `heartbeat`, `finish` and the logs to decide.
    """
    attempt = tx.conn.execute(OF_EPOCH, {"this_key": key, "this_epoch": epoch}).one_or_none()
    if attempt is None or not secrets.compare_digest(attempt.token_hash, token_hash(token)):
        raise AccessError(f"This token is not good for attempt {epoch} of task {key}.")
    task = tx.conn.execute(OF_KEY, {"this_key": key}).one()
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
    is_bound = ledger.take(tx, ref.task.project, _own(ref, body.usage))
    samples.take(tx, ref.task.project, _of(ref, body.samples))
    values: dict[str, Any] = {"lease_until_ns": lease_until(tx)}
    if body.started and ref.attempt.started_ns is None:
        values["started_ns"] = tx.now_ns
    if body.resumed_from_step is not None:
        values["resumed_from_step"] = body.resumed_from_step
    news = _news(tx, ref, body)
    task = transitions.touch(tx, ref.task, **news) if news or len(values) > 1 else ref.task
    if is_bound:
        fresh = tx.conn.execute(OF_KEY, {"this_key": task.key}).one()  # what it used may have stopped it
        task = funds.renew(tx, fresh, ref.attempt.epoch)
    if task.stop_code is not None:
        values["told_to_stop"] = True
    change(tx, task.key, ref.attempt.epoch, values)
    note_worker(tx, WorkerIdentity(task.project, task.function, ref.attempt.worker), None, busy=True)
    if task.stop_code is None:
        return wire.HeartbeatReply(lease_s=tx.limits.lease_s)
    return wire.HeartbeatReply(
        directive="stop", code=task.stop_code, reason=task.stop_reason, lease_s=tx.limits.lease_s
    )


def finish(tx: Transaction, ref: AttemptRef, body: wire.FinishRequest) -> wire.TaskView:
    """End the attempt. The same outcome again changes nothing; anything else after its end raises FencedAttempt."""
    if ref.attempt.state != "running" and ref.attempt.outcome == body.outcome:
        return views.task_view(tx, ref.task)
    current(ref)
    touched = ledger.enter(tx, ref.task.project, _own(ref, body.usage))
    samples.take(tx, ref.task.project, _of(ref, body.samples))
    news = _news(tx, ref, body)
    task = transitions.touch(tx, ref.task, **news) if news else ref.task
    actor, stop = ref.attempt.worker, task.stop_code
    if body.outcome == "succeeded":
        _end(tx, ref, "succeeded", "finished", body.outcome)
        columns = {"output": dumps(body.output), "error": None, "losses": 0}
        transitions.move(tx, task, "succeeded", "finished", actor, **columns)
    elif stop == "timeout":
        error = _timeout_error(functions.spec(tx, task.project, task.function, task.digest))
        _end(tx, ref, "failed", "timeout", body.outcome, error)
        _retry_or_fail(tx, task, error, actor)
    elif stop is not None:
        _end(tx, ref, "canceled", task.stop_reason, body.outcome, body.error)
        columns = {"error": stops.error(tx, task.run_id, stop, task.stop_reason)}
        transitions.move(tx, task, "canceled", task.stop_reason, stop, **columns)
    elif body.outcome == "failed":
        error = body.error or wire.ErrorInfo(kind="user", message=body.reason or "the attempt failed")
        _end(tx, ref, "failed", error.message[:200], body.outcome, error)
        _retry_or_fail(tx, task, error, actor)
    elif body.outcome == "canceled" and not ref.attempt.told_to_stop:
        reason = body.reason or "ended by its own code"
        _end(tx, ref, "canceled", reason, body.outcome)
        transitions.move(tx, task, "canceled", reason, actor, error=stops.error(tx, task.run_id, "canceled", reason))
    else:
        reason = body.reason or "preempted"
        if body.outcome == "canceled":
            reason = "it stopped, but was resumed meanwhile"
        _taken_away(tx, AttemptRef(task, ref.attempt), "preempted", reason, actor, body.outcome)
    funds.settle(tx, touched)
    admission.admit(tx)
    return views.task_view(tx, tx.conn.execute(OF_KEY, {"this_key": task.key}).one())


def lost(tx: Transaction, key: str, epoch: int, reason: str) -> None:
    """Give up an attempt whose worker is gone or does not obey.

    A task that was stopping ends; one that had reached its timeout has failed; any other is dispatched again, until it
    was lost too often without progress.
    """
    task = tx.conn.execute(OF_KEY, {"this_key": key}).one_or_none()
    if task is None or task.state != "running" or task.epoch != epoch:
        return
    attempt = tx.conn.execute(OF_EPOCH, {"this_key": key, "this_epoch": epoch}).one()
    ref = AttemptRef(task, attempt)
    ledger.give_up(tx, key, epoch, fault=task.stop_code is None)
    _silence(tx, task.project, attempt.worker)
    if task.stop_code == "timeout":
        error = _timeout_error(functions.spec(tx, task.project, task.function, task.digest))
        _end(tx, ref, "failed", f"timeout; {reason}", None, error)
        _retry_or_fail(tx, task, error, "supervisor")
    elif task.stop_code is not None:
        _end(tx, ref, "canceled", f"{task.stop_reason}; {reason}", None)
        columns = {"error": stops.error(tx, task.run_id, task.stop_code, task.stop_reason)}
        transitions.move(tx, task, "canceled", task.stop_reason, task.stop_code, **columns)
    else:
        _taken_away(tx, ref, "lost", reason, "supervisor", None)
    admission.admit(tx)


def _taken_away(tx: Transaction, ref: AttemptRef, state: str, reason: str, actor: str, outcome: str | None) -> None:
    """Let the task go on in a new attempt, unless too many in a row were taken from it before a new checkpoint.

    The first time at once, then after a pause that doubles to 30 s.
    """
    progressed = any(note["epoch"] == ref.attempt.epoch for note in loads(ref.task.checkpoints))
    losses = 1 if progressed else ref.task.losses + 1
    if losses >= MAX_LOSSES:
        error = wire.ErrorInfo(
            kind="lost",
            message=f"The worker was {state} {losses} times in a row without a new checkpoint; the last time: {reason}.",
            hint="Look at the last log lines and at the memory of the step, and save checkpoints more often than workers "
            "go away; run.resume() tries again.",
        )
        _end(tx, ref, state, reason, outcome, error)
        transitions.move(tx, ref.task, "failed", error.message, "supervisor", error=error.model_dump_json())
        return
    _end(tx, ref, state, reason, outcome)
    pause_ns = 0 if losses == 1 else min(30_000_000_000, 250_000_000 << min(losses - 2, 7))
    again = f"{reason}; trying again from the last checkpoint" if state == "lost" else reason
    transitions.move(tx, ref.task, "queued", again, actor, losses=losses, not_before_ns=tx.now_ns + pause_ns)


def explain(tx: Transaction, key: str, reason: str) -> None:
    """Say why a dispatched task still waits."""
    task = tx.conn.execute(OF_KEY, {"this_key": key}).one_or_none()
    if task is not None and task.state == "dispatched" and task.reason != reason:
        transitions.touch(tx, task, reason=reason)


def _silence(tx: Transaction, project: str, worker: str) -> None:
    """Count a worker out until it is heard of again: it gets no events and cannot take the task that it lost."""
    table = schema.workers
    tx.run(table.update().where((table.c.project == project) & (table.c.id == worker)).values(silent=True))


def worker_gone(tx: Transaction, worker: str, reason: str, *, project: str | None = None) -> list[str]:
    """Give up everything a dead worker had; returns the keys of its tasks."""
    joined = sa.select(_TABLE.c.task, _TABLE.c.epoch).join(_TASKS, _TASKS.c.key == _TABLE.c.task)
    theirs = (_TABLE.c.worker == worker) & (_TABLE.c.state == "running")
    forget = schema.workers.c.id == worker
    if project is not None:
        theirs &= _TASKS.c.project == project
        forget &= schema.workers.c.project == project
    rows = tx.all(joined.where(theirs))
    for row in rows:
        lost(tx, row.task, row.epoch, reason)
    tx.run(schema.workers.delete().where(forget))
    return [row.task for row in rows]


def _timeout_error(spec: FunctionSpec) -> wire.ErrorInfo:
    limit = "its timeout" if spec.timeout_s is None else f"timeout={spec.timeout_s:g} s"
    return wire.ErrorInfo(
        kind="timeout",
        type="Timeout",
        message=f"The attempt ran longer than {limit}.",
        hint="Raise timeout= on the step; run.resume() continues from the last checkpoint.",
    )


def _retry_or_fail(tx: Transaction, task: sa.Row[Any], error: wire.ErrorInfo, actor: str) -> None:
    retries = functions.spec(tx, task.project, task.function, task.digest).retries
    failures = task.failures + 1
    columns = {"failures": failures, "error": error.model_dump_json()}
    if failures > retries.times:
        transitions.move(tx, task, "failed", error.message[:500], actor, **columns)
        return
    delay_s = retries.delay_before(failures)
    reason = f"failed ({error.message[:200]}); retry {failures} of {retries.times} in {delay_s:g} s"
    columns["not_before_ns"] = tx.now_ns + round(delay_s * 1e9)
    transitions.move(tx, task, "queued", reason, actor, **columns)


def _end(
    tx: Transaction, ref: AttemptRef, state: str, reason: str, outcome: str | None, error: wire.ErrorInfo | None = None
) -> None:
    """Close an attempt and give back what it held. `outcome` is what its worker said, None when it said nothing."""
    values = {
        "state": state,
        "reason": reason,
        "outcome": outcome,
        "error": None if error is None else error.model_dump_json(),
        "finished_ns": tx.now_ns,
    }
    change(tx, ref.task.key, ref.attempt.epoch, values)
    tx.run(_WORKER, {"in_project": ref.task.project, "this_id": ref.attempt.worker, "busy": False})
    if ref.task.gpu:
        devices.release(tx, ref.task.key)


def lease_until(tx: Transaction) -> int:
    """Return when a lease that is taken or renewed now ends."""
    return tx.now_ns + round(tx.limits.lease_s * 1e9)


def _own(ref: AttemptRef, usage: list[wire.LeaseEvent]) -> list[wire.LeaseEvent]:
    """Keep the usage events of this very attempt; a worker cannot write into another's ledger."""
    return [
        event
        for event in _of(ref, usage)
        if event.task == ref.task.key and event.epoch == ref.attempt.epoch and event.run_id == ref.task.run_id
    ]


_Said = TypeVar("_Said", wire.LeaseEvent, DeviceSample)


def _of(ref: AttemptRef, said: list[_Said]) -> list[_Said]:
    """Keep what names a lease of this very attempt."""
    prefix = f"{ref.task.key}.{ref.attempt.epoch}."
    return [one for one in said if one.lease.startswith(prefix)]


def _news(tx: Transaction, ref: AttemptRef, body: wire.HeartbeatRequest | wire.FinishRequest) -> dict[str, Any]:
    """Return the task's columns that the worker's news change."""
    news: dict[str, Any] = {}
    if body.progress is not None:
        news["progress"] = dumps(body.progress)
    if body.metrics:
        news["metrics"] = dumps({**loads(ref.task.metrics), **body.metrics})
        metrics.note(tx, ref.task.key, body.metrics)
    if body.checkpoints:
        known = {(note["step"], note["epoch"]): note for note in loads(ref.task.checkpoints)}
        outbox.checkpoints(tx, ref.task, [one for one in body.checkpoints if (one.step, one.epoch) not in known])
        known |= {(note.step, note.epoch): note.model_dump(mode="json") for note in body.checkpoints}
        news["checkpoints"] = dumps(list(known.values())[-100:])
    return news
