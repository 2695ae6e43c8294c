"""trainlet as a plain CloudEvents function: what it is called with, it brings to the training API, whose triggers decide.

Two conventions are spoken, with nothing of either installed. functions-framework calls a function with an event; one that
raises is answered 500, and the sender comes again. knative/func calls `new()` once, and then `handle(scope, receive, send)`
of what it returned for each event, with `start`, `stop`, `alive` and `ready` around it. The address and the token of the
API are in the environment (TRAINLET_API, TRAINLET_TOKEN or TRAINLET_TOKEN_FILE).
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from trainlet.core import events
from trainlet.core.errors import PlatformError, TrainletError, UserError
from trainlet.core.settings import Settings

if TYPE_CHECKING:
    from trainlet.client.http import Client

Message = MutableMapping[str, Any]


class CloudEvent(Protocol):
    """What both major versions of the CloudEvents SDK call an event."""

    def get_attributes(self) -> Mapping[str, Any]:
        """Return the context attributes."""
        ...

    def get_data(self) -> Any:
        """Return the data: JSON, text, bytes or nothing."""
        ...


def cloud_event(event: CloudEvent) -> None:
    """Bring an event to the training API: the target of `functions-framework --signature-type cloudevent`.

    Raises when it was not taken in, so that the sender comes again; the same event again changes nothing.
    """
    _send(os.environ, read(event))


def new() -> Function:
    """Return the function instance of knative/func."""
    return Function()


class Function:
    """One instance of the function, as knative/func drives it."""

    def __init__(self) -> None:
        self._environ: Mapping[str, str] = os.environ

    def start(self, cfg: Mapping[str, str]) -> None:
        """Take the settings; raises UserError for those that name no API."""
        self._environ = dict(cfg)
        _api(self._environ)

    def stop(self) -> None:
        """End; every event that was answered is with the API."""

    def alive(self) -> tuple[bool, str]:
        """Say that this process answers."""
        return True, "OK"

    def ready(self) -> tuple[bool, str]:
        """Say whether the API can be reached: an instance that cannot reach it should get no events."""
        try:
            _api(self._environ).ping()
        except TrainletError as error:
            return False, str(error)
        return True, "OK"

    async def handle(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Message]], send: Any
    ) -> None:
        """Bring one event to the API and answer 202 without a body, 4xx for one that can never be taken, 503 for later."""
        status, said = 202, ""
        try:
            event = read(scope["event"]) if "event" in scope else events.from_http(*await _request(scope, receive))
            await asyncio.to_thread(_send, self._environ, event)
        except PlatformError as error:
            status, said = 503, str(error)
        except UserError as error:
            status, said = 422, str(error)
        respond: Callable[[Message], Awaitable[None]] = getattr(send, "http", send)
        headers = [(b"content-type", b"text/plain; charset=utf-8")] if said else []
        await respond({"type": "http.response.start", "status": status, "headers": headers})
        await respond({"type": "http.response.body", "body": said.encode()})


def read(event: CloudEvent) -> events.Event:
    """Return an event of the CloudEvents SDK, of either major version, as one of trainlet's; raises UserError."""
    attributes: dict[str, Any] = {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in event.get_attributes().items()
    }
    data = event.get_data()
    if not isinstance(data, bytes | bytearray):
        return events.from_json({**attributes, **({} if data is None else {"data": data})})
    media = attributes.get("datacontenttype")
    bare = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"}
    found = events.from_http({**bare, **({"content-type": str(media)} if media else {})}, bytes(data))
    return events.from_json({**attributes, **events.Event({}, found.data, found.binary).to_json()})


def _api(environ: Mapping[str, str]) -> Client:
    settings = Settings.from_environment(environ)
    if settings.api is None:
        raise UserError("This function does not know the training API. Set TRAINLET_API and TRAINLET_TOKEN.")
    return _client(settings)


def _send(environ: Mapping[str, str], event: events.Event) -> None:
    from trainlet.client.triggers import Triggers

    Triggers(_api(environ)).send([event])


@functools.lru_cache(maxsize=4)
def _client(settings: Settings) -> Client:
    from trainlet.client import connect

    return connect(settings)


async def _request(scope: Mapping[str, Any], receive: Callable[[], Awaitable[Message]]) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request that nobody has read yet."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", [])}
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > 2 * events.MAX_DATA_BYTES:
            raise UserError(f"The event has more than {2 * events.MAX_DATA_BYTES} bytes. Send the URI of its data.")
        if not message.get("more_body", False):
            return headers, body
