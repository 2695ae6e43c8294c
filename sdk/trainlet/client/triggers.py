"""The client's calls about events and what they start: `/v1/events`, `/v1/subscriptions`, `/v1/schedules`, `/v1/firings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import RootModel

from trainlet.core import events, wire
from trainlet.core.triggers import (
    Accepted,
    EventView,
    KubeflowRun,
    Pause,
    Replay,
    Schedule,
    Subscription,
    TriggerKind,
    TriggerView,
)

if TYPE_CHECKING:
    from trainlet.client.http import Client

_PATHS: dict[TriggerKind, str] = {"event": "/v1/subscriptions", "schedule": "/v1/schedules"}


class _Notification(RootModel[Any]):
    """What a vendor sends."""


class _Batch(RootModel[list[dict[str, Any]]]):
    """A JSON array of events."""


class Triggers:
    """What a client can say about triggers and events."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, name: str, spec: Subscription | Schedule) -> TriggerView:
        """Register a trigger, or replace its definition."""
        kind: TriggerKind = "event" if isinstance(spec, Subscription) else "schedule"
        return self._client._call("PUT", f"{_PATHS[kind]}/{name}", TriggerView, spec)

    def done_by(self, run_id: str, kubeflow_run: str) -> wire.RunView:
        """Say which run of Kubeflow Pipelines does a triggered run: what its pods dispatch has its tags and its budget."""
        path = f"/v1/firings/{run_id}/kubeflow-run"
        return self._client._call("PUT", path, wire.RunView, KubeflowRun(id=kubeflow_run))

    def all(self) -> list[TriggerView]:
        """Return all triggers of the project, by name."""
        found = [TriggerView.model_validate(item) for path in _PATHS.values() for item in self._client._pages(path)]
        return sorted(found, key=lambda view: view.name)

    def get(self, kind: TriggerKind, name: str) -> TriggerView:
        """Return a trigger with its definition, what waits and what runs."""
        return self._client._call("GET", f"{_PATHS[kind]}/{name}", TriggerView)

    def delete(self, kind: TriggerKind, name: str) -> None:
        """Remove a trigger."""
        self._client._call("DELETE", f"{_PATHS[kind]}/{name}", wire.Page)

    def pause(self, kind: TriggerKind, name: str, reason: str) -> TriggerView:
        """Start nothing more; events still come in and wait."""
        return self._client._call("POST", f"{_PATHS[kind]}/{name}:pause", TriggerView, Pause(reason=reason))

    def resume(self, kind: TriggerKind, name: str) -> TriggerView:
        """Go on."""
        return self._client._call("POST", f"{_PATHS[kind]}/{name}:resume", TriggerView)

    def send(self, given: Sequence[events.Event]) -> Accepted:
        """Send events; repeating them changes nothing."""
        forms = _Batch([event.to_json() for event in given])
        return self._client._call("POST", "/v1/events", Accepted, forms, headers={"Content-Type": events.BATCH})

    def notify(self, adapter: str, notification: Any, headers: dict[str, str] | None = None) -> Accepted:
        """Send what a store, a registry or a monitor sent, through the adapter for it."""
        path = f"/v1/events/{quote(adapter, safe='')}"
        return self._client._call("POST", path, Accepted, _Notification(notification), headers=headers)

    def events(self, *, event_id: str | None = None, state: str | None = None, limit: int = 50) -> list[EventView]:
        """Return the newest events with what they matched."""
        params: dict[str, Any] = {"id": event_id, "state": state, "limit": limit}
        page = self._client._call("GET", "/v1/events", wire.Page, params=params)
        return [EventView.model_validate(item) for item in page.items]

    def event(self, number: int) -> EventView:
        """Return an event with its trail."""
        return self._client._call("GET", f"/v1/events/{number}", EventView)

    def replay(self, number: int, trigger: str | None = None) -> EventView:
        """Give an event once more to a trigger, or to all that it matches."""
        return self._client._call("POST", f"/v1/events/{number}:replay", EventView, Replay(trigger=trigger))

    def firings(self, after: int, wait_s: float) -> wire.Page:
        """Return the open runs that triggers started, after a number; waits for one."""
        return self._client._call("GET", "/v1/firings", wire.Page, params={"after": after, "wait": wait_s})
