"""Alerts of Prometheus Alertmanager (webhook version 4), and of Grafana, which sends the same shape: one event an alert.

Alertmanager tells of a group again and again while it fires. An alert is told by its fingerprint and the time that it
began, so what is repeated changes nothing, and an alert that comes back is another event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from trainlet.core import events
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import shapes

WHAT = "webhook of Alertmanager"
PREFIX = "io.prometheus.alertmanager.alert."


class _Alert(shapes.Shape):
    status: Literal["firing", "resolved"]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    starts_at: str = Field(alias="startsAt")
    ends_at: str | None = Field(default=None, alias="endsAt")
    generator: str | None = Field(default=None, alias="generatorURL")
    fingerprint: str = Field(default="", max_length=200)


class _Webhook(shapes.Shape):
    receiver: str = Field(min_length=1, max_length=500)
    group: str | None = Field(default=None, alias="groupKey")
    external: str | None = Field(default=None, alias="externalURL")
    alerts: list[_Alert] = Field(max_length=10_000)


def convert(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return an event of each alert; raises UserError."""
    sent = shapes.read(_Webhook, shapes.content(headers, body, WHAT), WHAT)
    return [_event(sent, alert) for alert in sent.alerts]


def _event(sent: _Webhook, alert: _Alert) -> Event:
    name, severity = alert.labels.get("alertname"), alert.labels.get("severity")
    who = alert.fingerprint or shapes.identity(alert.labels)
    data = {
        "status": alert.status,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "starts_at": alert.starts_at,
        "ends_at": alert.ends_at if alert.status == "resolved" else None,
        "generator_url": alert.generator,
        "group": sent.group,
        "external_url": sent.external,
    }
    return events.make(
        PREFIX + alert.status,
        f"alertmanager/{shapes.text(sent.receiver)}",
        shapes.identity(who, alert.starts_at, alert.status),
        {key: value for key, value in data.items() if value not in (None, "")},
        subject=shapes.text(name),
        time=shapes.moment(alert.ends_at if alert.status == "resolved" else alert.starts_at),
        alertname=shapes.text(name),
        severity=shapes.text(severity),
    )
