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
from trainlet.core.specs import FunctionSpec
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state import admission, devices, functions, outbox, schema, stops, transitions, views
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.state.problems import FencedAttempt, Taken, WrongDevices
from trainlet_functions.state.tokens import new_token, token_hash

MAX_LOSSES = 10  # attempts lost in a row without a new checkpoint before the task fails (T3)
_TASKS = schema.tasks
_TABLE = schema.attempts
_THIS = (_TABLE.c.task == sa.bindparam("this_key")) & (_TABLE.c.epoch == sa.bindparam("this_epoch"))
_ATTEMPT = sa.select(_TABLE).where(_THIS)
_UPDATE = _TABLE.update().where(_THIS)
_TASK = sa.select(_TASKS).where(_TASKS.c.key == sa.bindparam("this_key"))
_WORKER = schema.workers.update().where(
    (schema.workers.c.project == sa.bindparam("in_project")) & (schema.workers.c.id == sa.bindparam("this_id"))
)
_BUDGET = sa.select(schema.runs.c.budget_nano).where(schema.runs.c.id == sa.bindparam("this_run"))


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
    _bury_earlier_process(tx, worker, body.nonce)
    task = tx.conn.execute(_TASK, {"this_key": key}).one_or_none()
    if task is None or task.project != worker.project or task.epoch != epoch:
        raise Taken(f"Task {key} is not at epoch {epoch}.")
    if task.function != worker.function:
        raise AccessError(f"A worker of {worker.function!r} cannot run a task of {task.function!r}.")
    if task.state == "running":
        attempt = tx.conn.execute(_ATTEMPT, {"this_key": key, "this_epoch": epoch}).one()
        if attempt.worker == worker.worker and attempt.nonce == body.nonce:
            note_worker(tx, worker, body.url, busy=True)
            return _again(tx, task, attempt)
        raise Taken(f"Task {key} is taken by {attempt.worker}.")
    if task.state != "dispatched":
        raise Taken(f"Task {key} is {task.state}.")
    return _start(tx, worker, task, body)


def claim_next(tx: Transaction, worker: WorkerIdentity, body: wire.ClaimRequest) -> wire.ClaimReply | None:
    """Give the oldest dispatched task of the worker's function, or None."""
    _bury_earlier_process(tx, worker, body.nonce)
    held = (_TABLE.c.worker == worker.worker) & (_TABLE.c.state == "running") & (_TABLE.c.nonce == body.nonce)
    for attempt in tx.all(sa.select(_TABLE).where(held).limit(1)):
        task = tx.conn.execute(sa.select(_TASKS).where(_TASKS.c.key == attempt.task)).one()
        if task.project == worker.project and task.function == worker.function and task.epoch == attempt.epoch:
            note_worker(tx, worker, body.url, busy=True)
            return _again(tx, task, attempt)
    mine = (_TASKS.c.project == worker.project) & (_TASKS.c.function == worker.function)
    oldest = sa.select(_TASKS).where(mine & (_TASKS.c.state == "dispatched"))
    refused: WrongDevices | None = None
    for found in tx.all(oldest.order_by(_TASKS.c.created_ns, _TASKS.c.key).limit(1 if body.devices is None else 20)):
        try:
            return _start(tx, worker, found, body)
        except WrongDevices as error:  # of another version of the function, perhaps: a later task may fit
            refused = refused or error
    if refused is not None:
        raise refused
    note_worker(tx, worker, body.url, busy=False)
    return None


def _bury_earlier_process(tx: Transaction, worker: WorkerIdentity, nonce: str) -> None:
    """Give up what a worker had before its process was started again: nobody needs to wait for the lease."""
    process, dot, _ = nonce.partition(".")
    if not dot:
        return
    theirs = (_TABLE.c.worker == worker.worker) & (_TABLE.c.state == "running")
    for attempt in tx.all(sa.select(_TABLE.c.task, _TABLE.c.epoch, _TABLE.c.nonce).where(theirs)):
        if attempt.nonce.partition(".")[0] != process:
            lost(tx, attempt.task, attempt.epoch, f"worker {worker.worker} was started again")


def _start(tx: Transaction, worker: WorkerIdentity, task: sa.Row[Any], body: wire.ClaimRequest) -> wire.ClaimReply:
    spec = functions.spec(tx, task.project, task.function, task.digest)
    if tx.capacity.owns_devices:
        given = devices.held(tx, task.key) if task.gpu else []
    else:
        given = _fitting(worker, task, spec, body.devices or [])
    token = new_token("tla")
    tx.insert(
        _TABLE,
        task=task.key,
        epoch=task.epoch,
        state="running",
        worker=worker.worker,
        nonce=body.nonce,
        token_hash=token_hash(token),
        devices=dumps([device.model_dump(mode="json") for device in given]),
        claimed_ns=tx.now_ns,
        lease_until_ns=_lease_until(tx),
        reason="",
        told_to_stop=False,
    )
    note_worker(tx, worker, body.url, busy=True)
    deadline = None if spec.timeout_s is None else tx.now_ns + round(spec.timeout_s * 1e9)
    reason = f"running on {worker.worker}"
    task = transitions.move(tx, task, "running", reason, worker.worker, deadline_ns=deadline)
    outbox.close(tx, task.key, task.epoch)
    return _reply(tx, task, spec, token, given)


def _fitting(
    worker: WorkerIdentity, task: sa.Row[Any], spec: FunctionSpec, found: list[wire.Device]
) -> list[wire.Device]:
    """Return the devices of a worker that an attempt gets. Raises WrongDevices: a bill must name what was used."""
    given = devices.matching(spec.resources, found)
    if given is None:
        has = ", ".join(sorted(device.sku for device in found)) or "no device"
        raise WrongDevices(
            task.key,
            f"{worker.worker} has {has}, and the task needs {devices.words(spec.resources)}. Check the node's device plugin "
            "and the label that says which GPU it has; a function whose gpu= changed needs a new name while old tasks wait.",
        )
    return given


def _again(tx: Transaction, task: sa.Row[Any], attempt: sa.Row[Any]) -> wire.ClaimReply:
    """Repeat the reply to a claim, with a fresh token; the lost one is worthless from now on."""
    token = new_token("tla")
    values = {"token_hash": token_hash(token), "lease_until_ns": _lease_until(tx)}
    _change(tx, task.key, attempt.epoch, values)
    given = [wire.Device.model_validate(device) for device in loads(attempt.devices)]
    spec = functions.spec(tx, task.project, task.function, task.digest)
    return _reply(tx, task, spec, token, given)


def _reply(
    tx: Transaction, task: sa.Row[Any], spec: FunctionSpec, token: str, given: list[wire.Device]
) -> wire.ClaimReply:
    return wire.ClaimReply(
        task=views.task_view(tx, task),
        spec=spec,
        args=loads(task.args),
        epoch=task.epoch,
        token=token,
        devices=given,
        lease_s=tx.limits.lease_s,
        heartbeat_s=tx.limits.heartbeat_s,
        wall_anchor_ns=tx.now_ns,
        store_url="",
    )


def _change(tx: Transaction, key: str, epoch: int, values: dict[str, Any]) -> None:
    tx.conn.execute(_UPDATE, {**values, "this_key": key, "this_epoch": epoch})


def note_worker(tx: Transaction, worker: WorkerIdentity, url: str | None, *, busy: bool) -> None:
    """Remember that a worker is there and where it takes events."""
    table = schema.workers
    values: dict[str, Any] = {"seen_ns": tx.now_ns, "busy": busy, "silent": False, "function": worker.function}
    if url is not None:
        values["url"] = url
    this = {"in_project": worker.project, "this_id": worker.worker}
    if not tx.run(_WORKER, {**values, **this}):
        tx.insert(table, id=worker.worker, project=worker.project, **values)


def authenticate(tx: Transaction, key: str, epoch: int, token: str) -> AttemptRef:
    """Check the token of an attempt; raises AccessError for a foreign token.

    Whether the attempt is still the current one is for `heartbeat`, `finish` and the logs to decide.
    """
    attempt = tx.conn.execute(_ATTEMPT, {"this_key": key, "this_epoch": epoch}).one_or_none()
    if attempt is None or not secrets.compare_digest(attempt.token_hash, token_hash(token)):
        raise AccessError(f"This token is not good for attempt {epoch} of task {key}.")
    task = tx.conn.execute(_TASK, {"this_key": key}).one()
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
    news = _news(ref, body)
    task = transitions.touch(tx, ref.task, **news) if news or len(values) > 1 else ref.task
    if _check_budget(tx, task.project, task.run_id):
        task = tx.conn.execute(_TASK, {"this_key": task.key}).one()
    if task.stop_code is not None:
        values["told_to_stop"] = True
    _change(tx, task.key, ref.attempt.epoch, values)
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
    metering.ingest(tx, ref.task.project, _own(ref, body.usage))
    news = _news(ref, body)
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
        columns = {"error": stops.error(stop, task.stop_reason)}
        transitions.move(tx, task, "canceled", task.stop_reason, stop, **columns)
    elif body.outcome == "failed":
        error = body.error or wire.ErrorInfo(kind="user", message=body.reason or "the attempt failed")
        _end(tx, ref, "failed", error.message[:200], body.outcome, error)
        _retry_or_fail(tx, task, error, actor)
    elif body.outcome == "canceled" and not ref.attempt.told_to_stop:
        reason = body.reason or "ended by its own code"
        _end(tx, ref, "canceled", reason, body.outcome)
        transitions.move(tx, task, "canceled", reason, actor, error=stops.error("canceled", reason))
    else:
        reason = body.reason or "preempted"
        if body.outcome == "canceled":
            reason = "it stopped, but was resumed meanwhile"
        _end(tx, ref, "preempted", reason, body.outcome)
        transitions.move(tx, task, "queued", reason, actor, not_before_ns=tx.now_ns)
    _check_budget(tx, task.project, task.run_id)
    admission.admit(tx)
    return views.task_view(tx, tx.conn.execute(_TASK, {"this_key": task.key}).one())


def lost(tx: Transaction, key: str, epoch: int, reason: str) -> None:
    """Give up an attempt whose worker is gone or does not obey.

    A task that was stopping ends; one that had reached its timeout has failed; any other is dispatched again, until it
    was lost too often without progress.
    """
    task = tx.conn.execute(_TASK, {"this_key": key}).one_or_none()
    if task is None or task.state != "running" or task.epoch != epoch:
        return
    attempt = tx.conn.execute(_ATTEMPT, {"this_key": key, "this_epoch": epoch}).one()
    ref = AttemptRef(task, attempt)
    metering.close_stale(tx, key, epoch, fault=task.stop_code is None)
    _silence(tx, task.project, attempt.worker)
    progressed = any(note["epoch"] == epoch for note in loads(task.checkpoints))
    losses = 1 if progressed else task.losses + 1
    if task.stop_code == "timeout":
        error = _timeout_error(functions.spec(tx, task.project, task.function, task.digest))
        _end(tx, ref, "failed", f"timeout; {reason}", None, error)
        _retry_or_fail(tx, task, error, "supervisor")
    elif task.stop_code is not None:
        _end(tx, ref, "canceled", f"{task.stop_reason}; {reason}", None)
        columns = {"error": stops.error(task.stop_code, task.stop_reason)}
        transitions.move(tx, task, "canceled", task.stop_reason, task.stop_code, **columns)
    elif losses >= MAX_LOSSES:
        error = wire.ErrorInfo(
            kind="lost",
            message=f"The worker was lost {losses} times in a row without a new checkpoint; the last time: {reason}.",
            hint="Look at the last log lines and at the memory of the step; run.resume() tries again.",
        )
        _end(tx, ref, "lost", reason, None, error)
        transitions.move(tx, task, "failed", error.message, "supervisor", error=error.model_dump_json())
    else:
        _end(tx, ref, "lost", reason, None)
        pause_ns = 0 if losses == 1 else min(30_000_000_000, 250_000_000 << min(losses - 2, 7))
        again = f"{reason}; trying again from the last checkpoint"
        transitions.move(tx, task, "queued", again, "supervisor", losses=losses, not_before_ns=tx.now_ns + pause_ns)
    admission.admit(tx)


def explain(tx: Transaction, key: str, reason: str) -> None:
    """Say why a dispatched task still waits."""
    task = tx.conn.execute(_TASK, {"this_key": key}).one_or_none()
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
    _change(tx, ref.task.key, ref.attempt.epoch, values)
    tx.run(_WORKER, {"in_project": ref.task.project, "this_id": ref.attempt.worker, "busy": False})
    if ref.task.gpu:
        devices.release(tx, ref.task.key)


def _lease_until(tx: Transaction) -> int:
    return tx.now_ns + round(tx.limits.lease_s * 1e9)


def _own(ref: AttemptRef, usage: list[wire.LeaseEvent]) -> list[wire.LeaseEvent]:
    """Keep the usage events of this very attempt; a worker cannot write into another's ledger."""
    prefix = f"{ref.task.key}.{ref.attempt.epoch}."
    return [
        event
        for event in usage
        if event.task == ref.task.key
        and event.epoch == ref.attempt.epoch
        and event.run_id == ref.task.run_id
        and event.lease.startswith(prefix)
    ]


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


def _check_budget(tx: Transaction, project: str, run_id: str) -> bool:
    """Stop all tasks of a run that has spent what it may; returns whether it has."""
    limit = tx.conn.execute(_BUDGET, {"this_run": run_id}).scalar()
    if limit is None:
        return False
    spent = reports.spent_nano(tx, project, run_id)
    if spent < limit:
        return False
    reason = f"the budget of the run is spent ({spent / 1e9:.4f} of {limit / 1e9:.4f})"
    stops.request_all(tx, _TASKS.c.run_id == run_id, "budget", reason)
    return True
