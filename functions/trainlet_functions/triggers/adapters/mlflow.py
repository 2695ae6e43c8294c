"""Webhooks of MLflow's registry (MLflow 3): models, versions, tags, aliases and prompts that are new or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from trainlet.core import events
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import shapes

WHAT = "webhook of MLflow"
PREFIX = "org.mlflow."
SOURCE = "mlflow"


class _Webhook(shapes.Shape):
    entity: str = Field(pattern=r"^[a-z_]{1,100}$")
    action: str = Field(pattern=r"^[a-z_]{1,100}$")
    timestamp: str | None = None
    data: dict[str, Any] = {}


def convert(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return its one event, with `data.uri` as MLflow names a version; raises UserError."""
    form = shapes.content(headers, body, WHAT)
    sent = shapes.read(_Webhook, form, WHAT)
    uri = _uri(sent)
    made = events.make(
        f"{PREFIX}{sent.entity}.{sent.action}",
        SOURCE,
        shapes.identity(sent.entity, sent.action, sent.timestamp, sent.data),
        {**sent.data, **({} if uri is None else {"uri": uri})},
        subject=shapes.text(sent.data.get("name")),
        time=shapes.moment(sent.timestamp),
    )
    return [made]


def _uri(sent: _Webhook) -> str | None:
    name, version, alias = (sent.data.get(key) for key in ("name", "version", "alias"))
    if not isinstance(name, str) or not name:
        return None
    place = f"{'prompts' if sent.entity.startswith('prompt') else 'models'}:/{name}"
    if isinstance(alias, str) and alias:
        return f"{place}@{alias}"
    return f"{place}/{version}" if isinstance(version, str | int) and version != "" else None
