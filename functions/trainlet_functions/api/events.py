"""`/v1/events`: CloudEvents 1.0 from outside, in binary, structured and batch mode, each taken in once."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.v1.event import CloudEvent
from flask import Response, g, request

from trainlet.core import wire
from trainlet.core.errors import AccessError, ConflictError, UserError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet_functions import metering, wakeups
from trainlet_functions.api.routes import Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import attempts, outbox, schema
from trainlet_functions.state.database import Transaction, dumps

routes = Routes()
LEASE = "dev.trainlet.lease."


@routes.add("POST", "/v1/events", reply=wire.Page, statuses=(202,))
def take(platform: Platform) -> tuple[dict[str, Any], int]:
    """Take in one or more CloudEvents; the same (source, id) again changes nothing, with other data it is refused."""
    raw, media = request.get_data(), request.headers.get("Content-Type", "")
    events = _batch(raw) if media.startswith("application/cloudevents-batch+json") else [_one(raw)]
    if any(event.get_type().startswith(LEASE) for event in events):
        g.identity.require("admin")  # a lease ends the older ones of its device, whoever has them
    with platform.database.write() as tx:
        fresh = sum(_store(tx, project(), event) for event in events)
    return {"items": [event.get_id() for event in events], "next": None, "new": fresh}, 202


@routes.add("POST", "/v1/dead-letters", "public", statuses=(202,))
def bury(platform: Platform) -> Response:
    """Take back a wake-up that a broker gave up on. Its signature is its ticket; anything else is refused."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        event = wakeups.read(headers, request.get_data(), public_key=platform.signer.public_key)
    except wakeups.Refused as refused:
        raise AccessError(f"The event is not taken back: {refused}.") from refused
    code, told = (str(event.attributes.get(name, "")) for name in ("knativeerrorcode", "knativeerrordata"))
    why = f"the broker gave up on it (the worker answered {code or 'nothing'}{': ' + told[:200] if told else ''})"
    with platform.database.write() as tx:
        outbox.bury(tx, event.event_id, why)
        attempts.explain(tx, event.task, f"waiting for a worker: {why}; it is announced again")
    return Response(status=202)  # with an empty body: a broker would take one for a reply event


def _one(raw: bytes) -> CloudEvent:
    try:
        event = from_http_event(HTTPMessage(dict(request.headers), raw))
    except (BaseCloudEventException, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UserError(
            f"The request is no CloudEvent 1.0: {error}. It needs ce-specversion, type, source and id."
        ) from error
    return _checked(event)


def _batch(raw: bytes) -> list[CloudEvent]:
    try:
        items = json.loads(raw)
        if not isinstance(items, list):
            raise ValueError("it is not a JSON array")
        headers = {"content-type": "application/cloudevents+json"}
        return [_checked(from_http_event(HTTPMessage(headers, json.dumps(item).encode()))) for item in items[:1000]]
    except (BaseCloudEventException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"The batch is no list of CloudEvents: {error}.") from error


def _checked(event: Any) -> CloudEvent:
    if not isinstance(event, CloudEvent) or not event.get_id() or not event.get_source() or not event.get_type():
        raise UserError("A CloudEvent needs an id, a source and a type.")
    if len(event.get_id()) > 500 or len(event.get_source()) > 2000:
        raise UserError("The id of a CloudEvent may have 500 characters, its source 2000.")
    return event


def _store(tx: Transaction, owner: str, event: CloudEvent) -> int:
    data = event.get_data()
    if isinstance(data, bytes):
        data = data.decode("utf-8", "backslashreplace")
    digest = sha256_hex(canonical_json([event.get_type(), data]))
    table = schema.inbox
    where = (table.c.project == owner) & (table.c.source == event.get_source()) & (table.c.id == event.get_id())
    known = tx.one(sa.select(table.c.payload_hash).where(where))
    if known is not None:
        if known.payload_hash != digest:
            raise ConflictError(f"The event {event.get_id()!r} of {event.get_source()!r} came before with other data.")
        return 0
    base = {"project": owner, "source": event.get_source(), "id": event.get_id(), "type": event.get_type()}
    tx.run(table.insert().values(**base, payload_hash=digest, body=dumps(data), received_ns=tx.now_ns))
    if event.get_type().startswith(LEASE):
        metering.ingest(tx, owner, [wire.LeaseEvent.model_validate(data)])
    return 1
