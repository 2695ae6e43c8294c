"""The typed client of the training API: one method per endpoint, messages in `trainlet.core.wire`.

Every call is idempotent by design (keys, nonces, offsets), so a broken connection is simply tried again until the
deadline. Problems come back as the error that says what to do.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import secrets
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trainlet.client import streams, tokens
from trainlet.client.errors import ApiFailed, ApiUnreachable, FencedError, ProtocolMismatch, TakenError
from trainlet.core import bills, errors, traces, wire
from trainlet.core.specs import FunctionSpec

_LOG = logging.getLogger("trainlet")
_Reply = TypeVar("_Reply", bound=BaseModel)
PATIENCE_S = 120.0

_PROBLEMS: dict[str, type[errors.TrainletError]] = {
    "fenced": FencedError,
    "taken": TakenError,
    "conflict": errors.ConflictError,
    "not-found": errors.NotFoundError,
    "unauthorized": errors.AccessError,
    "forbidden": errors.AccessError,
    "protocol": ProtocolMismatch,
}


class Client:
    """A connection pool to one training API. Safe to use from several threads.

    A `token` that is a path is a file, read anew for each call: Kubernetes renews it under the feet of a pod. A call that
    finds nobody is repeated for `retry_s` seconds; a method's own `retry_s` overrides that. `revive`, where it is given,
    is asked for the API's (url, token) of now when nothing listens any more, and may start it.
    """

    def __init__(
        self,
        url: str,
        token: str | Path | None = None,
        *,
        timeout_s: float = 35.0,
        retry_s: float = 10.0,
        revive: Callable[[], tuple[str, str]] | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._bearer = tokens.Bearer(token)
        self._retry_s = retry_s
        self._revive = revive
        self._warned = ""
        headers = {wire.PROTOCOL_HEADER: str(wire.PROTOCOL)}
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
        timeout = httpx.Timeout(timeout_s, connect=5.0)
        # Loading the certificate bundle takes 60 ms: only where there is TLS.
        tls = self.url.startswith("https:")
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            limits=limits,
            trust_env=False,
            verify=tls,
            auth=self._bearer,
        )
        weakref.finalize(self, self._http.close)  # a forgotten Run must not leave its sockets open

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @property
    def token(self) -> str | None:
        """Return the token of now; raises ApiUnreachable when its file cannot be read."""
        return self._bearer.token()

    # -- service and functions

    def ping(self) -> None:
        """Return when the API answers; raises ApiUnreachable at once otherwise."""
        self._send("GET", "/healthz", retry_s=0)

    def get_info(self) -> wire.ServiceInfo:
        """Return what this API is and where its store is."""
        return self._call("GET", "/v1", wire.ServiceInfo)

    def put_function(self, spec: FunctionSpec) -> wire.FunctionView:
        """Register a function; the bundle must be in the store already."""
        return self._call("PUT", f"/v1/functions/{spec.name}", wire.FunctionView, spec)

    def get_function(self, name: str, digest: str | None = None) -> wire.FunctionView:
        """Return a function: the given version, else the newest."""
        return self._call("GET", f"/v1/functions/{name}", wire.FunctionView, params={"digest": digest})

    def list_functions(self) -> list[wire.FunctionView]:
        """Return all functions of the project."""
        return [wire.FunctionView.model_validate(item) for item in self._pages("/v1/functions")]

    def invoke(self, name: str, body: wire.Invoke, *, wait_s: float = 0, key: str | None = None) -> wire.TaskView:
        """Run a function once, also over repeats with the same key; with `wait_s` the reply may hold the result."""
        # A repeated request must not start it twice.
        headers = {"Idempotency-Key": key or secrets.token_hex(16), **_traced()}
        if wait_s:
            headers["Prefer"] = f"wait={wait_s:g}"
        return self._call("POST", f"/v1/functions/{name}:invoke", wire.TaskView, body, headers=headers)

    def create_token(self, body: wire.TokenCreate) -> wire.Token:
        """Make a token for a project; needs an admin's own."""
        return self._call("POST", "/v1/tokens", wire.Token, body)

    # -- runs and tasks

    def put_run(self, run_id: str, body: wire.RunCreate) -> wire.RunView:
        """Create a run, or attach to it."""
        return self._call("PUT", f"/v1/runs/{run_id}", wire.RunView, body)

    def get_run(self, run_id: str) -> wire.RunView:
        """Return a run with its graph."""
        return self._call("GET", f"/v1/runs/{run_id}", wire.RunView)

    def list_runs(self, limit: int = 50) -> list[wire.RunView]:
        """Return the newest runs."""
        page = self._call("GET", "/v1/runs", wire.Page, params={"limit": limit})
        return [wire.RunView.model_validate(item) for item in page.items]

    def cancel_run(self, run_id: str, reason: str = "cancelled by the user") -> wire.RunView:
        """Stop a run after its checkpoints."""
        return self._call("POST", f"/v1/runs/{run_id}:cancel", wire.RunView, wire.Cancel(reason=reason))

    def resume_run(self, run_id: str, body: wire.Resume) -> wire.RunView:
        """Continue a failed or cancelled run."""
        return self._call("POST", f"/v1/runs/{run_id}:resume", wire.RunView, body)

    def finish_run(self, run_id: str, body: wire.RunFinish) -> wire.RunView:
        """Record the outcome of a run."""
        return self._call("POST", f"/v1/runs/{run_id}:finish", wire.RunView, body)

    def changes(self, run_id: str, after: int, wait_s: float = 0) -> wire.Changes:
        """Return the tasks that changed after the cursor; waits up to `wait_s` for one."""
        return self._call("GET", f"/v1/runs/{run_id}/changes", wire.Changes, params={"after": after, "wait": wait_s})

    def put_task(self, key: str, body: wire.TaskCreate, *, trace: str | None = None) -> wire.TaskView:
        """Create a task, or attach to it; `trace` is its parent in a trace (default: this process's)."""
        headers = {traces.HEADER: trace} if trace else _traced()
        return self._call("PUT", f"/v1/tasks/{key}", wire.TaskView, body, headers=headers)

    def get_task(self, key: str) -> wire.TaskView:
        """Return a task with its attempts."""
        return self._call("GET", f"/v1/tasks/{key}", wire.TaskView)

    def cancel_task(self, key: str, reason: str = "cancelled by the user") -> wire.TaskView:
        """Stop one task after its checkpoint."""
        return self._call("POST", f"/v1/tasks/{key}:cancel", wire.TaskView, wire.Cancel(reason=reason))

    def resume_task(self, key: str, body: wire.Resume) -> wire.TaskView:
        """Continue a failed or cancelled task from its checkpoint."""
        return self._call("POST", f"/v1/tasks/{key}:resume", wire.TaskView, body)

    def timeline(self, key: str) -> list[wire.TimelineEntry]:
        """Return every state a task has had."""
        page = self._call("GET", f"/v1/tasks/{key}/timeline", wire.Page)
        return [wire.TimelineEntry.model_validate(item) for item in page.items]

    def metric_history(self, key: str) -> wire.MetricHistory:
        """Return how a task's metrics went."""
        return self._call("GET", f"/v1/tasks/{key}/metrics", wire.MetricHistory)

    def renew_dispatcher(self, lease: wire.DispatcherLease) -> None:
        """Say that whoever waits is still there."""
        self._send("POST", f"/v1/dispatchers/{lease.id}:heartbeat", lease)

    # -- logs and money

    def logs(self, run_id: str, *, task: str | None = None, after: int = 0, limit: int = 1000) -> list[wire.LogLine]:
        """Return log lines after a sequence number."""
        params = {"after": after, "limit": limit, "task": task}
        page = self._call("GET", f"/v1/runs/{run_id}/logs", wire.Page, params=params)
        return [wire.LogLine.model_validate(item) for item in page.items]

    def follow_logs(self, run_id: str, *, task: str | None = None, after: int = 0) -> Iterator[wire.LogLine]:
        """Yield log lines until the run (or the task) ends; over broken connections it goes on where it stopped.

        Raises ApiUnreachable when the API stays away for `PATIENCE_S`.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                for event, data in self._events(f"/v1/runs/{run_id}/logs", after, {"task": task}):
                    if event == "end":
                        return
                    line = wire.LogLine.model_validate(data)
                    after = line.seq
                    deadline = time.monotonic() + PATIENCE_S
                    yield line
                deadline = time.monotonic() + PATIENCE_S
            except ApiUnreachable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)
            self._revived()

    def usage(self, run_id: str | None = None, task: str | None = None) -> wire.UsageReport:
        """Return the metered seconds and their cost."""
        return self._call("GET", "/v1/usage", wire.UsageReport, params={"run": run_id, "task": task})

    def prices(self) -> dict[str, Any]:
        """Return the price list."""
        return dict(self._send("GET", "/v1/prices").json())

    def diff_prices(self, body: wire.PriceFile) -> wire.PriceChanges:
        """Return what applying a price list would add."""
        return self._call("POST", "/v1/prices:diff", wire.PriceChanges, body)

    def apply_prices(self, body: wire.PriceFile) -> wire.PriceChanges:
        """Add the versions of a price list that are new."""
        return self._call("POST", "/v1/prices:apply", wire.PriceChanges, body)

    def billing_periods(self, project: str | None = None) -> list[bills.PeriodView]:
        """Return the billing periods, the oldest first; `*` is every project, for an admin."""
        return self._call("GET", "/v1/billing/periods", bills.PeriodList, params={"project": project}).items

    def close_period(self, period: str, body: bills.ClosePeriod) -> bills.PeriodView:
        """Close a billing period for good; needs an admin's token. A month of much usage takes its time."""
        return self._call("POST", f"/v1/billing/periods/{period}:close", bills.PeriodView, body, retry_s=600)

    @contextlib.contextmanager
    def billing_rows(
        self, period: str | None = None, project: str | None = None
    ) -> Iterator[tuple[bills.Snapshot, Iterator[bills.Row]]]:
        """Open a snapshot of a period: what it is, and its rows. Rows that are not all there raise ApiUnreachable."""
        self.ping()
        with self._lines("/v1/billing/rows", "billing rows", {"period": period, "project": project}) as lines:
            try:
                yield bills.Snapshot.model_validate_json(next(lines, "")), streams.whole(lines, self.url)
            except ValidationError as error:
                raise ApiUnreachable(f"The billing rows from {self.url} broke off: {error}. Try again.") from error

    def checkpoints(self, task: str) -> list[wire.CheckpointNote]:
        """Return the committed checkpoints of a task, newest first."""
        page = self._call("GET", "/v1/checkpoints", wire.Page, params={"task": task})
        return [wire.CheckpointNote.model_validate(item) for item in page.items]

    def checkpoint_links(self, task: str, step: int | None, valid_s: int) -> wire.CheckpointLinks:
        """Return signed URLs that read a checkpoint of a task, the newest without a step."""
        params = {"task": task, "step": step, "valid_s": valid_s}
        return self._call("GET", "/v1/checkpoints/links", wire.CheckpointLinks, params=params)

    # -- what workers say

    def claim(self, task: str, epoch: int, body: wire.ClaimRequest, *, retry_s: float | None = None) -> wire.ClaimReply:
        """Claim an attempt; raises TakenError when another has it."""
        return self._call("POST", f"/v1/attempts/{task}/{epoch}:claim", wire.ClaimReply, body, retry_s=retry_s)

    def claim_next(
        self, function: str, body: wire.ClaimRequest, *, retry_s: float | None = None
    ) -> wire.ClaimReply | None:
        """Claim the oldest dispatched task of the function, or return None."""
        response = self._send("POST", f"/v1/functions/{function}:claim-next", body, retry_s=retry_s)
        return None if response.status_code == 204 else _parse(wire.ClaimReply, response)

    def heartbeat(
        self, task: str, epoch: int, token: str, body: wire.HeartbeatRequest, *, retry_s: float = 0
    ) -> wire.HeartbeatReply:
        """Renew the lease; raises FencedError when the attempt is not the current one."""
        path = f"/v1/attempts/{task}/{epoch}:heartbeat"
        return self._call("POST", path, wire.HeartbeatReply, body, headers=_bearer(token), retry_s=retry_s)

    def append_logs(self, task: str, epoch: int, token: str, body: wire.LogsRequest, *, retry_s: float = 0) -> int:
        """Append lines at an offset; return the offset that comes next."""
        path = f"/v1/attempts/{task}/{epoch}:logs"
        reply = self._call("POST", path, wire.LogsReply, body, headers=_bearer(token), retry_s=retry_s)
        return reply.next_offset

    def finish(
        self, task: str, epoch: int, token: str, body: wire.FinishRequest, *, retry_s: float = 0
    ) -> wire.TaskView:
        """End an attempt; repeating it changes nothing."""
        path = f"/v1/attempts/{task}/{epoch}:finish"
        return self._call("POST", path, wire.TaskView, body, headers=_bearer(token), retry_s=retry_s)

    # -- transport

    def _call(
        self, method: str, path: str, reply: type[_Reply], body: BaseModel | None = None, **options: Any
    ) -> _Reply:
        return _parse(reply, self._send(method, path, body, **options))

    def _pages(self, path: str) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self._call("GET", path, wire.Page, params={"cursor": cursor})
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def _send(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        retry_s: float | None = None,
    ) -> httpx.Response:
        content = None if body is None else body.model_dump_json(exclude_defaults=False).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if content is not None else headers
        query = {name: value for name, value in (params or {}).items() if value is not None}
        deadline = time.monotonic() + (self._retry_s if retry_s is None else retry_s)
        pause, revivals = 0.05, 0
        while True:
            if self._http.is_closed:  # by `close`, or because this process ends
                raise ApiUnreachable(f"The connection to {self.url} was closed.")
            try:
                response = self._http.request(method, path, content=content, params=query, headers=sent)
            except httpx.TransportError as error:
                failure: errors.PlatformError = ApiUnreachable(
                    f"The training API at {self.url} does not answer ({type(error).__name__}: {error}). "
                    "Is it running? `trainlet doctor` tells."
                )
                if isinstance(error, httpx.ConnectError) and retry_s != 0 and revivals < 3 and self._revived():
                    revivals += 1
                    deadline = max(deadline, time.monotonic() + 2 * pause)
            else:
                self._heed(response.headers.get(wire.WARNING_HEADER, ""))
                if response.status_code not in (502, 503, 504):
                    return _checked(response)
                failure = ApiUnreachable(f"The training API at {self.url} answers {response.status_code}; try again.")
            if time.monotonic() + pause >= deadline:
                raise failure
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 1.0)

    def _heed(self, warning: str) -> None:
        """Tell what the API says is wrong with it, once; on a terminal and in a notebook it shows without any set-up."""
        if warning and warning != self._warned:
            _LOG.warning("trainlet: the training API is in trouble, and what runs may stand still: %s", warning)
        self._warned = warning

    def _revived(self) -> bool:
        """Follow the API to where it is now, where somebody knows; say whether it answers there."""
        if self._revive is None:
            return False
        try:
            url, token = self._revive()
        except errors.PlatformError as error:
            raise ApiUnreachable(str(error)) from error
        self.url, self._bearer.given = url, token
        self._http.base_url = httpx.URL(url)
        return True

    def _events(self, path: str, after: int, params: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield (event, data) of a server-sent event stream."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        with self._lines(path, "log stream", params, headers) as lines:
            event = "message"
            for line in lines:
                if line.startswith("event:"):
                    event = line[6:].strip()
                elif line.startswith("data:"):
                    yield event, json.loads(line[5:])
                    event = "message"

    @contextlib.contextmanager
    def _lines(
        self, path: str, what: str, params: dict[str, Any], headers: dict[str, str] | None = None
    ) -> Iterator[Iterator[str]]:
        """Open an answer that comes line by line; raises ApiUnreachable, also in the middle of it."""
        query = {name: value for name, value in params.items() if value is not None}
        try:
            with self._http.stream("GET", path, params=query, headers=headers) as response:
                if response.status_code in (502, 503, 504):
                    raise ApiUnreachable(f"The training API at {self.url} answers {response.status_code}.")
                if response.status_code != 200:
                    response.read()
                    _checked(response)
                yield streams.lines(response.iter_bytes())
        except httpx.TransportError as error:
            raise ApiUnreachable(f"The {what} from {self.url} broke: {error}.") from error


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _traced() -> dict[str, str]:
    """Say in which trace this process is, if it is in one."""
    trace = traces.current(os.environ)
    return {} if trace is None else {traces.HEADER: str(trace)}


def _parse(reply: type[_Reply], response: httpx.Response) -> _Reply:
    try:
        return reply.model_validate_json(response.content)
    except ValidationError as error:
        raise ProtocolMismatch(
            f"{response.request.url} answered something that is not a {reply.__name__}: is it a training API of this "
            f"version? {error.errors()[0]['msg']}"
        ) from error


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = wire.Problem.model_validate_json(response.content)
    except ValidationError:
        problem = wire.Problem(status=response.status_code, detail=response.text[:500])
    text = (problem.detail or problem.title or f"HTTP {response.status_code}").rstrip()
    if problem.hint:
        text += f" {problem.hint}"
    slug = problem.type.rsplit(":", 1)[-1]
    if slug in _PROBLEMS:
        raise _PROBLEMS[slug](text)
    if response.status_code >= 500:
        raise ApiFailed(f"{response.request.method} {response.request.url.path} failed: {text}")
    raise errors.UserError(text)
