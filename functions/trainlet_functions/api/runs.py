"""`/v1/runs`, `/v1/tasks` and `/v1/dispatchers`: what dispatchers and people do with work."""

from __future__ import annotations

from flask import request

from trainlet.core import traces, wire
from trainlet_functions.api.routes import Query, Routes, poll, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import dispatchers, metrics, runs, tasks

routes = Routes()
_CURSOR = (Query("cursor"), Query("limit", "integer", minimum=1, maximum=500))


@routes.add("PUT", "/v1/runs/{run_id}", body=wire.RunCreate, reply=wire.RunView, statuses=(200, 201))
def put_run(platform: Platform, run_id: str, body: wire.RunCreate) -> tuple[wire.RunView, int]:
    """Create a run, or attach to it."""
    with platform.database.write() as tx:
        view, created = runs.create(tx, project(), run_id, body)
    return view, 201 if created else 200


@routes.add("GET", "/v1/runs/{run_id}", reply=wire.RunView)
def get_run(platform: Platform, run_id: str) -> wire.RunView:
    """Return a run with its graph."""
    with platform.database.read() as tx:
        return runs.get(tx, project(), run_id)


@routes.add("GET", "/v1/runs", reply=wire.Page, query=_CURSOR)
def list_runs(platform: Platform, cursor: str | None, limit: int | None) -> wire.Page:
    """List runs, the newest first."""
    with platform.database.read() as tx:
        return runs.list_(tx, project(), cursor, limit or 50)


@routes.add("POST", "/v1/runs/{run_id}:cancel", body=wire.Cancel, reply=wire.RunView)
def cancel_run(platform: Platform, run_id: str, body: wire.Cancel) -> wire.RunView:
    """Stop a run: waiting tasks at once, running ones after a checkpoint."""
    with platform.database.write() as tx:
        return runs.cancel(tx, project(), run_id, body.reason)


@routes.add("POST", "/v1/runs/{run_id}:resume", body=wire.Resume, reply=wire.RunView)
def resume_run(platform: Platform, run_id: str, body: wire.Resume) -> wire.RunView:
    """Continue a failed or cancelled run from its checkpoints."""
    with platform.database.write() as tx:
        return runs.resume(tx, project(), run_id, body)


@routes.add("POST", "/v1/runs/{run_id}:finish", body=wire.RunFinish, reply=wire.RunView)
def finish_run(platform: Platform, run_id: str, body: wire.RunFinish) -> wire.RunView:
    """Record the outcome of a run."""
    with platform.database.write() as tx:
        return runs.finish(tx, project(), run_id, body)


@routes.add(
    "GET",
    "/v1/runs/{run_id}/changes",
    reply=wire.Changes,
    query=(Query("after", "integer", minimum=0), Query("wait", "number", minimum=0, maximum=60)),
)
def changes(platform: Platform, run_id: str, after: int | None, wait: float | None) -> wire.Changes:
    """Return the tasks that changed after a cursor; waits for one."""
    for _ in poll(platform, wait):
        with platform.database.read() as tx:
            found = runs.changes(tx, project(), run_id, after or 0)
        if found.cursor != (after or 0):
            break
    return found


@routes.add("PUT", "/v1/tasks/{key}", body=wire.TaskCreate, reply=wire.TaskView, statuses=(200, 201))
def put_task(platform: Platform, key: str, body: wire.TaskCreate) -> tuple[wire.TaskView, int]:
    """Create a task, or attach to it."""
    with platform.database.write() as tx:
        view, created = tasks.create(tx, project(), key, body, traces.parse(request.headers.get(traces.HEADER)))
    return view, 201 if created else 200


@routes.add("GET", "/v1/tasks/{key}", reply=wire.TaskView)
def get_task(platform: Platform, key: str) -> wire.TaskView:
    """Return a task with its attempts."""
    with platform.database.read() as tx:
        return tasks.get(tx, project(), key)


@routes.add("POST", "/v1/tasks/{key}:cancel", body=wire.Cancel, reply=wire.TaskView)
def cancel_task(platform: Platform, key: str, body: wire.Cancel) -> wire.TaskView:
    """Stop a task: at once when it waits, after a checkpoint when it runs."""
    with platform.database.write() as tx:
        return tasks.cancel(tx, project(), key, body.reason)


@routes.add("POST", "/v1/tasks/{key}:resume", body=wire.Resume, reply=wire.TaskView)
def resume_task(platform: Platform, key: str, body: wire.Resume) -> wire.TaskView:
    """Continue a failed or cancelled task from its checkpoint; the rest of its run stays as it is."""
    with platform.database.write() as tx:
        return tasks.resume(tx, project(), key, body)


@routes.add("GET", "/v1/tasks/{key}/timeline", reply=wire.Page)
def timeline(platform: Platform, key: str) -> wire.Page:
    """Return every state that a task has had."""
    with platform.database.read() as tx:
        return wire.Page(items=[entry.model_dump(mode="json") for entry in tasks.timeline(tx, project(), key)])


@routes.add("GET", "/v1/tasks/{key}/metrics", reply=wire.MetricHistory)
def metric_history(platform: Platform, key: str) -> wire.MetricHistory:
    """Return how a task's metrics went: a few hundred points of each at most."""
    with platform.database.read() as tx:
        return metrics.history(tx, project(), key)


@routes.add("POST", "/v1/dispatchers/{dispatcher}:heartbeat", body=wire.DispatcherLease)
def renew(platform: Platform, dispatcher: str, body: wire.DispatcherLease) -> dict[str, str]:
    """Say that whoever waits is still there."""
    with platform.database.write() as tx:
        dispatchers.renew(tx, project(), body.model_copy(update={"id": dispatcher}))
    return {"id": dispatcher}
