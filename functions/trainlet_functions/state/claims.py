"""Claims: who runs a task is decided here, once per epoch, in one transaction (invariants T1 and T5)."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import tags, wire
from trainlet.core.errors import AccessError
from trainlet.core.specs import FunctionSpec
from trainlet_functions.state import attempts, devices, functions, outbox, runs, schema, tasks, transitions, views
from trainlet_functions.state.attempts import WorkerIdentity
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.state.problems import Taken, WrongDevices
from trainlet_functions.state.tokens import new_token, token_hash

_TASKS = schema.tasks
_TABLE = schema.attempts


def claim(tx: Transaction, worker: WorkerIdentity, key: str, epoch: int, body: wire.ClaimRequest) -> wire.ClaimReply:
    """Give (task, epoch) to a worker. The same worker and nonce again get the same attempt, with a fresh token.

    Raises Taken when somebody else has it, it is over, or the epoch is not the current one; AccessError when the task
    belongs to another function.
    """
    _bury_earlier_process(tx, worker, body.nonce)
    task = tx.conn.execute(attempts.OF_KEY, {"this_key": key}).one_or_none()
    if task is None or task.project != worker.project or task.epoch != epoch:
        raise Taken(f"Task {key} is not at epoch {epoch}.")
    if task.function != worker.function:
        raise AccessError(f"A worker of {worker.function!r} cannot run a task of {task.function!r}.")
    if task.state == "running":
        attempt = tx.conn.execute(attempts.OF_EPOCH, {"this_key": key, "this_epoch": epoch}).one()
        if attempt.worker == worker.worker and attempt.nonce == body.nonce:
            attempts.note_worker(tx, worker, body.url, busy=True)
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
            attempts.note_worker(tx, worker, body.url, busy=True)
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
    attempts.note_worker(tx, worker, body.url, busy=False)
    return None


def _bury_earlier_process(tx: Transaction, worker: WorkerIdentity, nonce: str) -> None:
    """Give up what a worker had before its process was started again: nobody needs to wait for the lease."""
    process, dot, _ = nonce.partition(".")
    if not dot:
        return
    theirs = (_TABLE.c.worker == worker.worker) & (_TABLE.c.state == "running")
    for attempt in tx.all(sa.select(_TABLE.c.task, _TABLE.c.epoch, _TABLE.c.nonce).where(theirs)):
        if attempt.nonce.partition(".")[0] != process:
            attempts.lost(tx, attempt.task, attempt.epoch, f"worker {worker.worker} was started again")


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
        lease_until_ns=attempts.lease_until(tx),
        reason="",
        told_to_stop=False,
    )
    attempts.note_worker(tx, worker, body.url, busy=True)
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
    values = {"token_hash": token_hash(token), "lease_until_ns": attempts.lease_until(tx)}
    attempts.change(tx, task.key, attempt.epoch, values)
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
        tags=tags.merged(runs.labels(tx, task.run_id), spec.tags, tasks.labels(task)),
    )
