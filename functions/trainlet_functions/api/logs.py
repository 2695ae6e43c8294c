"""Logs: a page of JSON, or a stream of server-sent events that resumes by `Last-Event-ID`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from flask import Response, request

from trainlet.core import wire
from trainlet.core.errors import UserError
from trainlet_functions.api.routes import Query, Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import logs, runs, tasks
from trainlet_functions.state.database import Transaction

routes = Routes()
_QUERY = (
    Query("task"),
    Query("after", "integer", minimum=0),
    Query("limit", "integer", minimum=1, maximum=10_000),
)
KEEP_ALIVE_S = 10.0
BATCH = 2_000


@routes.add("GET", "/v1/runs/{run_id}/logs", reply=wire.Page, query=_QUERY)
def of_run(
    platform: Platform, run_id: str, task: str | None, after: int | None, limit: int | None
) -> wire.Page | Response:
    """Return a run's log lines after a sequence number; `Accept: text/event-stream` follows them to the end."""
    with platform.database.read() as tx:
        runs.row(tx, project(), run_id)
    return _answer(platform, run_id, task, after, limit)


@routes.add("GET", "/v1/tasks/{key}/logs", reply=wire.Page, query=_QUERY[1:])
def of_task(platform: Platform, key: str, after: int | None, limit: int | None) -> wire.Page | Response:
    """Return a task's log lines after a sequence number; `Accept: text/event-stream` follows them to the end."""
    with platform.database.read() as tx:
        run_id = tasks.row(tx, project(), key).run_id
    return _answer(platform, run_id, key, after, limit)


def _answer(
    platform: Platform, run_id: str, task: str | None, after: int | None, limit: int | None
) -> wire.Page | Response:
    if "text/event-stream" not in request.headers.get("Accept", ""):
        with platform.database.read() as tx:
            lines = logs.read(tx, run_id, task=task, after=after or 0, limit=limit or 1000, store=platform.store)
        more = str(lines[-1].seq) if len(lines) == (limit or 1000) else None
        return wire.Page(items=[line.model_dump(mode="json") for line in lines], next=more)
    last = request.headers.get("Last-Event-ID", "")
    if last and not last.isdigit():
        raise UserError(f"Last-Event-ID {last!r} is not a sequence number.")
    with platform.database.read() as tx:  # a restored database may hold fewer lines than the follower has seen
        start = min(int(last) if last else after or 0, runs.row(tx, project(), run_id).log_seq)
    stream = Response(_follow(platform, project(), run_id, task, start), content_type="text/event-stream")
    stream.headers["Cache-Control"] = "no-store"
    return stream


def _follow(platform: Platform, owner: str, run_id: str, task: str | None, after: int) -> Iterator[str]:
    """Yield events until what is followed has ended and every line was sent."""
    quiet_since = time.monotonic()
    while not platform.closing.is_set():
        seen = platform.database.change_count
        with platform.database.read() as tx:
            ended = _ended(tx, owner, run_id, task)
            lines = logs.read(tx, run_id, task=task, after=after, limit=BATCH, store=platform.store)
        if lines:
            after = lines[-1].seq
            quiet_since = time.monotonic()
            yield "".join(f"id: {line.seq}\ndata: {line.model_dump_json()}\n\n" for line in lines)
            continue
        if ended:
            yield "event: end\ndata: {}\n\n"
            return
        if time.monotonic() - quiet_since > KEEP_ALIVE_S:
            quiet_since = time.monotonic()
            yield ": still here\n\n"
        platform.database.wait_for_change(seen, 1.0)


def _ended(tx: Transaction, owner: str, run_id: str, task: str | None) -> bool:
    if task is not None:
        return tasks.get(tx, owner, task).state in wire.TERMINAL
    view = runs.get(tx, owner, run_id)
    live = sum(count for state, count in view.task_counts.items() if state not in wire.TERMINAL)
    return view.state != "running" and live == 0
