"""`/v1/subscriptions`, `/v1/schedules` and `/v1/firings`: what starts runs by itself, and who drives what it started."""

from __future__ import annotations

from typing import Any

from trainlet.core import wire
from trainlet.core.errors import UserError
from trainlet.core.triggers import KubeflowRun, KubeflowStart, Pause, Schedule, Subscription, TriggerKind, TriggerView
from trainlet_functions.api.routes import Query, Routes, poll, project
from trainlet_functions.platform import Platform
from trainlet_functions.triggers import filters, firing, places, registry, sources, watches

routes = Routes()
_LISTING: dict[str, Any] = {
    "reply": wire.Page,
    "query": (Query("cursor"), Query("limit", "integer", minimum=1, maximum=500)),
}


@routes.add("PUT", "/v1/subscriptions/{name}", body=Subscription, reply=TriggerView)
def put_subscription(platform: Platform, name: str, body: Subscription) -> TriggerView:
    """Register a subscription, or replace its definition."""
    if body.poll is not None:
        places.check(body.poll.url, embedded=platform.embedded)
    for _, source in filters.compile(body.filters).index_keys() or []:
        if source is not None:
            sources.check_source(project(), source)
    return _put(platform, name, body)


@routes.add("PUT", "/v1/schedules/{name}", body=Schedule, reply=TriggerView)
def put_schedule(platform: Platform, name: str, body: Schedule) -> TriggerView:
    """Register a schedule, or replace its definition."""
    return _put(platform, name, body)


@routes.add("GET", "/v1/subscriptions", **_LISTING)
def list_subscriptions(platform: Platform, cursor: str | None, limit: int | None) -> wire.Page:
    """List subscriptions by name."""
    return _page(platform, "event", cursor, limit)


@routes.add("GET", "/v1/schedules", **_LISTING)
def list_schedules(platform: Platform, cursor: str | None, limit: int | None) -> wire.Page:
    """List schedules by name."""
    return _page(platform, "schedule", cursor, limit)


@routes.add("GET", "/v1/subscriptions/{name}", reply=TriggerView)
def get_subscription(platform: Platform, name: str) -> TriggerView:
    """Return a subscription with what waits and runs."""
    return _get(platform, name, "event")


@routes.add("GET", "/v1/schedules/{name}", reply=TriggerView)
def get_schedule(platform: Platform, name: str) -> TriggerView:
    """Return a schedule with what waits and runs."""
    return _get(platform, name, "schedule")


@routes.add("DELETE", "/v1/subscriptions/{name}", reply=wire.Page)
def delete_subscription(platform: Platform, name: str) -> wire.Page:
    """Remove a subscription."""
    return _delete(platform, name, "event")


@routes.add("DELETE", "/v1/schedules/{name}", reply=wire.Page)
def delete_schedule(platform: Platform, name: str) -> wire.Page:
    """Remove a schedule."""
    return _delete(platform, name, "schedule")


@routes.add("POST", "/v1/subscriptions/{name}:pause", body=Pause, reply=TriggerView)
def pause_subscription(platform: Platform, name: str, body: Pause) -> TriggerView:
    """Start nothing more; events still come in and wait."""
    return _pause(platform, name, "event", body)


@routes.add("POST", "/v1/schedules/{name}:pause", body=Pause, reply=TriggerView)
def pause_schedule(platform: Platform, name: str, body: Pause) -> TriggerView:
    """Start nothing more; its moments are noted as skipped."""
    return _pause(platform, name, "schedule", body)


@routes.add("POST", "/v1/subscriptions/{name}:resume", reply=TriggerView)
def resume_subscription(platform: Platform, name: str) -> TriggerView:
    """Go on; what waited starts."""
    return _resume(platform, name, "event")


@routes.add("POST", "/v1/schedules/{name}:resume", reply=TriggerView)
def resume_schedule(platform: Platform, name: str) -> TriggerView:
    """Go on with the next moment."""
    return _resume(platform, name, "schedule")


@routes.add(
    "GET",
    "/v1/firings",
    reply=wire.Page,
    query=(Query("after", "integer", minimum=0), Query("wait", "number", minimum=0, maximum=60)),
)
def firings(platform: Platform, after: int | None, wait: float | None) -> wire.Page:
    """Return runs that a trigger started and that have not ended, after a number; waits for one."""
    for _ in poll(platform, wait):
        with platform.database.read() as tx:
            found = firing.open_after(tx, project(), after or 0)
        if found:
            break
    items = [
        {
            "number": row.number,
            "run_id": row.run_id,
            "trigger": row.trigger,
            "kubeflow": _kubeflow(platform, row.kubeflow),
        }
        for row in found
    ]
    return wire.Page(items=items, next=str(found[-1].number) if found else None)


@routes.add("PUT", "/v1/firings/{run_id}/kubeflow-run", body=KubeflowRun, reply=wire.RunView)
def done_by(platform: Platform, run_id: str, body: KubeflowRun) -> wire.RunView:
    """Say which run of Kubeflow Pipelines does a triggered run; the same again changes nothing."""
    with platform.database.write() as tx:
        return firing.done_by(tx, project(), run_id, body.id)


def _kubeflow(platform: Platform, start: str | None) -> dict[str, Any] | None:
    """Return how KFP starts a run, with the namespace that the project has there now."""
    if start is None:
        return None
    found = KubeflowStart.model_validate_json(start)
    try:
        more = {"namespace": platform.kubeflow_namespace(project())}
    except UserError as error:  # it was configured when the trigger was deployed
        more = {"refused": str(error)}
    return found.model_copy(update=more).model_dump(mode="json")


def _put(platform: Platform, name: str, body: Subscription | Schedule) -> TriggerView:
    if body.kubeflow is not None:
        platform.kubeflow_namespace(project())
    with platform.database.write() as tx:
        view = registry.put(tx, project(), name, body)
    watch = watches.watch(name, body)
    if watch is not None:
        platform.backend.watch(project(), watch)
    return view


def _page(platform: Platform, kind: TriggerKind, cursor: str | None, limit: int | None) -> wire.Page:
    most = limit or 100
    with platform.database.read() as tx:
        found = registry.list_(tx, project(), kind, cursor, most + 1)
    more = found[most - 1].name if len(found) > most else None
    return wire.Page(items=[view.model_dump(mode="json") for view in found[:most]], next=more)


def _get(platform: Platform, name: str, kind: TriggerKind) -> TriggerView:
    with platform.database.read() as tx:
        return registry.get(tx, project(), name, kind)


def _delete(platform: Platform, name: str, kind: TriggerKind) -> wire.Page:
    with platform.database.write() as tx:
        registry.delete(tx, project(), name, kind)
    return wire.Page(items=[name])


def _pause(platform: Platform, name: str, kind: TriggerKind, body: Pause) -> TriggerView:
    with platform.database.write() as tx:
        registry.row(tx, project(), name, kind)
        return registry.pause(tx, project(), name, body.reason)


def _resume(platform: Platform, name: str, kind: TriggerKind) -> TriggerView:
    with platform.database.write() as tx:
        registry.row(tx, project(), name, kind)
        return registry.resume(tx, project(), name)
