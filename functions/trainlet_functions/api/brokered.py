"""`/v1/projects/{project}/brokered/{name}`: what a broker or a clock of Knative brings to a trigger, or gave up on.

It is not `/v1/events`, because a broker asks for more: an answer without a body, since one would be taken for a reply
event, and a status that says whether it is worth coming again (4xx: never, but for 404, 408, 409 and 429).
"""

from __future__ import annotations

import logging

from flask import Response, request

from trainlet.core import events
from trainlet.core.errors import AccessError, ConflictError, UserError
from trainlet_functions.api.events import nothing
from trainlet_functions.api.routes import Routes, identity
from trainlet_functions.platform import Platform
from trainlet_functions.triggers import acceptance, registry, sources, ticks

_LOG = logging.getLogger(__name__)
routes = Routes()
_TOLD = ("knativeerrordest", "knativeerrorcode", "knativeerrordata")


@routes.add("POST", "/v1/projects/{project}/brokered/{name}", "public", statuses=(202,))
def bring(platform: Platform, project: str, name: str) -> Response:
    """Take in an event for a subscription, or look whether a schedule's moment has come. The same again changes nothing."""
    _check_sender(platform, project)
    event = events.from_http(dict(request.headers), request.get_data())
    with platform.database.read() as tx:
        kind = registry.row(tx, project, name).kind
    if kind == "schedule":
        with platform.database.write() as tx:
            ticks.tick(tx, project, name, platform.matcher)
    else:
        _take(platform, project, event)
    return nothing()


@routes.add("POST", "/v1/projects/{project}/brokered/{name}/dead-letters", "public", statuses=(202,))
def bury(platform: Platform, project: str, name: str) -> Response:
    """Take in what a broker gave up on bringing; where that cannot be done, the subscription says so."""
    _check_sender(platform, project)
    code, said = (request.headers.get(f"ce-{one}", "") for one in _TOLD[1:])
    with platform.database.read() as tx:
        registry.row(tx, project, name, "event")
    try:
        _take(platform, project, events.from_http(dict(request.headers), request.get_data()))
    except UserError as error:
        what = request.headers.get("ce-id", "without an id")[:200]
        reason = f"the broker gave up on the event {what!r} (answered {code or 'nothing'}): {error}"
        _LOG.warning("%s of %s: %s %s", name, project, reason, said)
        with platform.database.write() as tx:
            registry.explain(tx, project, name, reason)
        return nothing()
    _LOG.warning("%s of %s: an event came as a dead letter (answered %s): %s", name, project, code or "nothing", said)
    return nothing()


def _check_sender(platform: Platform, project: str) -> None:
    """Raise AccessError unless the sender has a token for events of the project, or none is asked for here."""
    if platform.believes_brokers:
        return
    sender = identity(platform)
    sender.require("events")
    if sender.project != project:
        raise AccessError(f"The sender belongs to the project {sender.project!r}, not to {project!r}.")


def _take(platform: Platform, project: str, event: events.Event) -> None:
    if event.type.startswith(sources.OWN_TYPE) or event.source.startswith(sources.OWN_SOURCE):
        return  # wake-ups for workers, or what the platform says of itself: it has heard that already
    sources.check(project, [event])
    told = {name: value for name, value in event.attributes.items() if name not in _TOLD}
    try:
        with platform.database.write() as tx:
            acceptance.accept(tx, project, [events.Event(told, event.data, event.binary)], platform.matcher)
    except ConflictError as error:
        raise UserError(str(error)) from error  # to come again would change nothing
