"""`/v1/attempts` and `:claim-next`: what workers say.

A claim needs the worker's own token; everything after it the token of that attempt, which is good for nothing else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from flask import Response, g

from trainlet.core import wire
from trainlet.core.errors import AccessError
from trainlet_functions import journals
from trainlet_functions.api.routes import Routes, bearer
from trainlet_functions.platform import Platform
from trainlet_functions.state import attempts, claims, logs
from trainlet_functions.state.problems import WrongDevices

routes = Routes()
_LOG = logging.getLogger(__name__)


def _worker(body: wire.ClaimRequest) -> attempts.WorkerIdentity:
    """Return which function's worker is calling, by its token."""
    for scope in g.identity.scopes:
        kind, _, function = scope.partition(":")
        if kind == "worker":
            if g.identity.worker not in (None, body.worker):
                raise AccessError(f"This is the token of {g.identity.worker}, which cannot claim for {body.worker}.")
            return attempts.WorkerIdentity(g.identity.project, function, body.worker, body.revision)
    raise AccessError("Only a worker's own token can claim work.")


@routes.add("POST", "/v1/attempts/{task}/{epoch}:claim", "worker", body=wire.ClaimRequest, reply=wire.ClaimReply)
def claim(platform: Platform, task: str, epoch: int, body: wire.ClaimRequest) -> wire.ClaimReply:
    """Claim an attempt; the same worker and nonce again get the same one."""
    worker = _worker(body)
    if body.event_token is not None:
        platform.check_sender(worker.project, worker.function, body.event_token)
    with _saying_why(platform), platform.database.write() as tx:
        reply = claims.claim(tx, worker, task, epoch, body)
    return _placed(platform, reply)


@routes.add(
    "POST",
    "/v1/functions/{name}:claim-next",
    "worker",
    body=wire.ClaimRequest,
    reply=wire.ClaimReply,
    statuses=(200, 204),
)
def claim_next(platform: Platform, name: str, body: wire.ClaimRequest) -> wire.ClaimReply | Response:
    """Claim the oldest dispatched task of the function; 204 when there is none."""
    worker = _worker(body)
    if worker.function != name:
        raise AccessError(f"This is the token of a worker of {worker.function!r}, not of {name!r}.")
    with _saying_why(platform), platform.database.write() as tx:
        reply = claims.claim_next(tx, worker, body)
    return Response(status=204) if reply is None else _placed(platform, reply)


@contextlib.contextmanager
def _saying_why(platform: Platform) -> Iterator[None]:
    """Let a task that no worker's devices fit say so: whoever waits for it sees that, not the pod's log."""
    try:
        yield
    except WrongDevices as error:
        with platform.database.write() as tx:
            attempts.explain(tx, error.task, str(error))
        raise


def _placed(platform: Platform, reply: wire.ClaimReply) -> wire.ClaimReply:
    worker = reply.task.attempts[-1].worker
    about = journals.about_attempt(reply.task, reply.epoch)
    _LOG.info("%s claimed epoch %d of %s", worker, reply.epoch, reply.task.key, extra=about)
    platform.backend.pin(worker, True)
    return reply.model_copy(update={"store_url": platform.store.url})


@routes.add(
    "POST",
    "/v1/attempts/{task}/{epoch}:heartbeat",
    "attempt",
    body=wire.HeartbeatRequest,
    reply=wire.HeartbeatReply,
)
def heartbeat(platform: Platform, task: str, epoch: int, body: wire.HeartbeatRequest) -> wire.HeartbeatReply:
    """Renew the lease, deliver usage, learn whether to stop."""
    token = bearer()
    with platform.database.write() as tx:
        return attempts.heartbeat(tx, attempts.authenticate(tx, task, epoch, token), body)


@routes.add("POST", "/v1/attempts/{task}/{epoch}:logs", "attempt", body=wire.LogsRequest, reply=wire.LogsReply)
def append_logs(platform: Platform, task: str, epoch: int, body: wire.LogsRequest) -> wire.LogsReply:
    """Append log lines at an offset; a resend changes nothing."""
    token = bearer()
    with platform.database.write() as tx:
        return wire.LogsReply(next_offset=logs.append(tx, attempts.authenticate(tx, task, epoch, token), body))


@routes.add("POST", "/v1/attempts/{task}/{epoch}:finish", "attempt", body=wire.FinishRequest, reply=wire.TaskView)
def finish(platform: Platform, task: str, epoch: int, body: wire.FinishRequest) -> wire.TaskView:
    """End an attempt; a repeat changes nothing."""
    token = bearer()
    with platform.database.write() as tx:
        view = attempts.finish(tx, attempts.authenticate(tx, task, epoch, token), body)
    about = journals.about_attempt(view, epoch)
    _LOG.info("%s ended epoch %d of %s: %s", body.worker, epoch, task, body.outcome, extra=about)
    if platform.spans is not None and view.state in wire.TERMINAL:
        platform.spans.task_ended(view)
    platform.backend.pin(body.worker, False)
    return view
