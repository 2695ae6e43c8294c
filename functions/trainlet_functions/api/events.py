"""`/v1/events`: CloudEvents 1.0 from outside, in binary, structured and batch mode, each taken in once; and their trail."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Response, g, request

from trainlet.core import events, wire
from trainlet.core.errors import AccessError, NotFoundError, UserError
from trainlet.core.triggers import Accepted, EventView, Replay
from trainlet_functions import wakeups
from trainlet_functions.api.routes import Query, Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import attempts, ledger, outbox
from trainlet_functions.triggers import acceptance, adapters, intake, sources, trails

routes = Routes()
LEASE = "dev.trainlet.lease."
_STATES = ("held", "started", "skipped")


def read(headers: Mapping[str, str], body: bytes) -> list[events.Event]:
    """Return the CloudEvents of a request in any of the three modes; raises UserError."""
    media = next((value for name, value in headers.items() if name.lower() == "content-type"), "").lower()
    return events.batch(body) if media.startswith(events.BATCH) else [events.from_http(headers, body)]


@routes.add("POST", "/v1/events", "events", reply=Accepted, statuses=(202,))
def take(platform: Platform) -> tuple[Accepted, int] | Response:
    """Take in one or more CloudEvents; the same (source, id) again changes nothing, with other data it is refused."""
    given = read(dict(request.headers), request.get_data())
    leases = [event for event in given if event.type.startswith(LEASE)]
    if leases:
        g.identity.require("admin")  # a lease ends the older ones of its device, whoever has them
    sources.check(project(), [event for event in given if not event.type.startswith(LEASE)])
    with platform.database.write() as tx:
        taken = acceptance.accept(tx, project(), given, platform.matcher)
        if leases:
            fresh = [event for event in taken.fresh if event.type.startswith(LEASE)]
            ledger.take(tx, project(), [wire.LeaseEvent.model_validate(event.data) for event in fresh])
    return answer(given, taken)


@routes.add("POST", "/v1/events/{adapter}", "events", reply=Accepted, statuses=(202,))
def adapt(platform: Platform, adapter: str) -> tuple[Accepted, int] | Response:
    """Take in what a store, a registry or a monitor sends by webhook; the same notification again changes nothing."""
    given = adapters.convert(adapter, dict(request.headers), request.get_data())
    sources.check(project(), given)
    with platform.database.write() as tx:
        taken = acceptance.accept(tx, project(), given, platform.matcher, identified=True)
    return answer(given, taken)


def answer(given: list[events.Event], taken: intake.Taken) -> tuple[Accepted, int] | Response:
    """Return what a sender is told; nothing for a broker of Knative, which would take a body for a broken reply event."""
    if "reply" in request.headers.get("Prefer", "").lower():
        return nothing()
    return Accepted(items=[event.id for event in given], new=len(taken.fresh), matched=taken.matched), 202


@routes.add(
    "GET",
    "/v1/events",
    reply=wire.Page,
    query=(Query("id"), Query("state"), Query("cursor", "integer"), Query("limit", "integer", minimum=1, maximum=500)),
)
def list_events(
    platform: Platform, id: str | None, state: str | None, cursor: int | None, limit: int | None
) -> wire.Page:
    """List events with what they matched, the newest first; or those with an id, or with a match in a state."""
    if state is not None and state not in _STATES:
        raise UserError(f"?state={state} is none of {', '.join(_STATES)}.")
    most = limit or 50
    with platform.database.read() as tx:
        found = trails.by_id(tx, project(), id) if id else trails.list_(tx, project(), cursor, most + 1, state)
    more = str(found[most - 1].number) if len(found) > most else None
    return wire.Page(items=[view.model_dump(mode="json") for view in found[:most]], next=more)


@routes.add("GET", "/v1/events/{number}", reply=EventView)
def get_event(platform: Platform, number: str) -> EventView:
    """Return an event with what it matched, the runs that it started, and why something waits."""
    with platform.database.read() as tx:
        return trails.get(tx, project(), _number(number))


@routes.add("POST", "/v1/events/{number}:replay", body=Replay, reply=EventView)
def replay(platform: Platform, number: str, body: Replay) -> EventView:
    """Give an event once more to a trigger, or to all that it matches now; this starts runs of its own."""
    with platform.database.write() as tx:
        return trails.replay(tx, project(), _number(number), body.trigger, platform.matcher)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise NotFoundError(f"{text!r} is no number of an event. GET /v1/events?id=... finds it by its id.")
    return int(text)


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
    return nothing()


def nothing() -> Response:
    """Return the empty answer of a broker's liking."""
    response = Response(status=202)
    del response.headers["Content-Type"]
    return response
