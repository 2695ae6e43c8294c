"""Wake-ups as they arrive: a CloudEvent becomes what it asks for, or is refused with the HTTP status that says why.

Whoever sent it, the signature inside decides: brokers and dead letter sinks pass events on without being trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.exceptions import BaseCloudEventException

from trainlet.core import envelopes
from trainlet_functions import signatures

MAX_ATTRIBUTES = 64 * 1024  # CloudEvents asks for 64 KiB to be passed on; ours have less than one


class Refused(Exception):
    """Raised when an event is not taken; holds the status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class WakeUp:
    """What a signed event asks for. `attributes` are those of the event itself, of which only some are signed."""

    event_id: str
    project: str
    function: str
    task: str
    epoch: int
    attributes: Mapping[str, Any]

    def require(self, project: str, function: str) -> None:
        """Raise Refused (403) unless the event is for a worker of this function."""
        if (self.project, self.function) != (project, function):
            raise Refused(403, f"this worker serves {project}/{function}, not {self.project}/{self.function}")


def read(headers: Mapping[str, str], body: bytes, *, public_key: str) -> WakeUp:
    """Return a wake-up that the training API signed.

    Raises Refused: 400 for what is no event or no wake-up, 401 without and 403 with a wrong signature, 413 for attributes
    of more than MAX_ATTRIBUTES.
    """
    structured = headers.get("content-type", "").startswith("application/cloudevents")
    try:
        # The library makes up what is missing: what has no id could then be told from no repetition of it.
        sent = json.loads(body) if structured else {name.removeprefix(envelopes.HEADER_PREFIX) for name in headers}
        missing = [name for name in ("specversion", "id", "source", "type") if name not in sent]
        if missing:
            raise Refused(400, f"this is no CloudEvent 1.0: it has no {', '.join(missing)}")
        event: Any = from_http_event(HTTPMessage(dict(headers), body))
        data = event.get_data()
        if isinstance(data, bytes | str):
            data = json.loads(data)
        attributes = event.get_attributes()
        kind, origin, event_id = event.get_type(), event.get_source(), event.get_id()
        subject = event.get_subject() or ""
    except (BaseCloudEventException, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise Refused(400, f"this is no CloudEvent 1.0: {error}") from error
    size = sum(len(name) + len(str(value)) for name, value in attributes.items())
    if size > MAX_ATTRIBUTES:
        raise Refused(413, f"the event's attributes have {size} characters, and at most {MAX_ATTRIBUTES} are taken")
    signature = attributes.get(envelopes.SIGNATURE)
    if not isinstance(signature, str):
        raise Refused(401, "the event is not signed")
    raw = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() if structured else body
    signed = envelopes.signed_bytes(kind, origin, event_id, subject, raw)
    if not signatures.verify(public_key, signature, signed):
        raise Refused(403, "the signature is not one of this training API")
    if kind != envelopes.WAKE_UP or not isinstance(data, dict):
        raise Refused(400, f"this is an event of type {kind}, not a wake-up")
    match data:
        case {"project": str(project), "function": str(function), "task": str(task), "epoch": int(epoch)}:
            return WakeUp(event_id, project, function, task, epoch, attributes)
    raise Refused(400, "the event names no project, function, task and epoch")
