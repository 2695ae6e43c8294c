"""What brings a trigger's events and moments to the training API: a Trigger, or a PingSource.

Both only wake. A broker asks the same filters as the API, which asks them again, with the data on top; an event that it
brings twice is known by source and id. The Trigger of a subscription is named `on.NAME`, because functions have Triggers
of their own names, and no function has a dot in its.
"""

from __future__ import annotations

from typing import Any

from trainlet.core import envelopes
from trainlet.core.triggers import Watch
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import crons
from trainlet_knative.objects.identities import EVENTS_AUDIENCE
from trainlet_knative.objects.names import Object, trigger_metadata
from trainlet_knative.objects.triggers import delivery

TIMEOUT_S = 30  # the API answers when the event is in its database


def objects_of(cluster: Cluster, project: str, watch: Watch) -> list[Object]:
    """Return the objects of a trigger; none where brokers may bring nothing, or the clock of Knative has no such moments."""
    if not cluster.takes_events:
        return []
    if watch.when is None:
        return [_trigger(cluster, project, watch)]
    ping = crons.translate(watch.when, watch.tz)
    return [] if ping is None else [_ping_source(cluster, project, watch.name, *ping)]


def _trigger(cluster: Cluster, project: str, watch: Watch) -> Object:
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": trigger_metadata(cluster, project, f"on.{watch.name}", watch.name),
        "spec": {
            "broker": cluster.broker,
            "filters": _without_own(watch.filters),
            "subscriber": _destination(cluster, project, watch.name),
            "delivery": delivery(TIMEOUT_S, _destination(cluster, project, f"{watch.name}/dead-letters")),
        },
    }


def _ping_source(cluster: Cluster, project: str, name: str, schedule: str, tz: str) -> Object:
    """Return a clock. It fires no run: it has the API look whether a moment has come (`trainlet_functions.triggers.ticks`).

    The API's own clock does the same. Knative's knows no moment that was missed, leaves out those of an hour that does not
    exist and doubles those of an hour that comes twice; so what a moment is, and that it comes once, only the API says.
    """
    return {
        "apiVersion": "sources.knative.dev/v1",
        "kind": "PingSource",
        "metadata": trigger_metadata(cluster, project, name, name),
        "spec": {
            "schedule": schedule,
            "timezone": tz,
            "contentType": "application/json",
            "data": '{"look": "now"}',
            "sink": _destination(cluster, project, name),
        },
    }


def _destination(cluster: Cluster, project: str, path: str) -> Object:
    found: Object = {"uri": f"{cluster.api_url.rstrip('/')}/v1/projects/{project}/brokered/{path}"}
    if cluster.oidc:
        found["audience"] = EVENTS_AUDIENCE
    return found


def _without_own(filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the filters, and where they leave the type open what the platform says itself is left out: it knows that."""
    if any("type" in one.get("exact", {}) for one in filters):
        return list(filters)
    return [*filters, {"not": {"prefix": {"type": envelopes.OWN_TYPE}}}]
