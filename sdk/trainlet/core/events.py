"""CloudEvents 1.0 as values: read strictly from JSON or from HTTP headers, and written as JSON again.

Reading is strict where a sender's mistake would cost later: an event without an id cannot be told from its repetition,
so it is refused and no id is made up. What is refused says which attribute is wrong and how the specification has it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from trainlet.core.errors import UserError

SPECVERSION = "1.0"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
MAX_DATA_BYTES = 1024 * 1024
MAX_BATCH = 1000
_LIMITS = {"id": 500, "source": 2000, "type": 500, "subject": 4000}
_OTHER_LIMIT = 8000
_MOST_ATTRIBUTES = 64
_NAME = re.compile(r"[a-z0-9]+")
# CloudEvents 1.0, 3.1 "Type System": no control characters, surrogates or noncharacters in a String.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_QUOTED_PAIR = re.compile(r"\\(.)")
_JSON_MEDIA = re.compile(r"[^/;]+/([^;+]+\+)?json\s*(;.*)?", re.IGNORECASE)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

Attribute = str | int | bool


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvent. `attributes` has all context attributes; `data` is JSON, or base64 text where `binary`."""

    attributes: Mapping[str, Attribute]
    data: Any = None
    binary: bool = field(default=False)

    @property
    def id(self) -> str:
        """Return the id, unique within the source."""
        return str(self.attributes["id"])

    @property
    def source(self) -> str:
        """Return the source."""
        return str(self.attributes["source"])

    @property
    def type(self) -> str:
        """Return the type."""
        return str(self.attributes["type"])

    @property
    def subject(self) -> str | None:
        """Return the subject, if there is one."""
        found = self.attributes.get("subject")
        return None if found is None else str(found)

    def to_json(self) -> dict[str, Any]:
        """Return the event in the JSON event format."""
        form: dict[str, Any] = dict(self.attributes)
        if self.data is not None:
            form["data_base64" if self.binary else "data"] = self.data
        return form


def make(kind: str, source: str, event_id: str, data: Any = None, **attributes: Attribute | None) -> Event:
    """Make an event of trainlet's own."""
    base: dict[str, Attribute] = {"specversion": SPECVERSION, "id": event_id, "source": source, "type": kind}
    return Event({**base, **{name: value for name, value in attributes.items() if value is not None}}, data)


def from_json(form: Any, where: str = "the event") -> Event:
    """Read the JSON event format; raises UserError that names the attribute."""
    if not isinstance(form, dict):
        raise UserError(f"{where} is no CloudEvent: it is a JSON {type(form).__name__}, not an object.")
    attributes = {name: value for name, value in form.items() if name not in ("data", "data_base64")}
    data, binary = form.get("data"), False
    if form.get("data_base64") is not None:
        if data is not None:
            raise UserError(f"{where} has both data and data_base64. Send one of them.")
        data, binary = form["data_base64"], True
        try:
            base64.b64decode(data, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise UserError(f"{where}: data_base64 is no base64.") from None
    size = len(data) if isinstance(data, str) else 0
    if size > MAX_DATA_BYTES:
        raise _too_much(where, size)
    return Event(_checked(attributes, where), data, binary)


def from_http(headers: Mapping[str, str], body: bytes, where: str = "the event") -> Event:
    """Read one event in binary mode (`ce-` headers) or structured mode; raises UserError."""
    lowered = {name.lower(): value for name, value in headers.items()}
    media = lowered.get("content-type", "")
    if media.lower().startswith("application/cloudevents") or not any(name.startswith("ce-") for name in lowered):
        return from_json(_json(body, where), where)
    attributes: dict[str, Any] = {
        name[3:]: _of_header(value, f"{where}: {name[:60]}")
        for name, value in lowered.items()
        if name.startswith("ce-")
    }
    if media:
        attributes["datacontenttype"] = media
    if len(body) > MAX_DATA_BYTES:
        raise _too_much(where, len(body))
    data: Any = None
    binary = False
    if body and (not media or _JSON_MEDIA.fullmatch(media)):
        data = _json(body, f"{where}'s data")
    elif body:
        try:
            data = body.decode()
        except UnicodeDecodeError:
            data, binary = base64.b64encode(body).decode(), True
    return Event(_checked(attributes, where), data, binary)


def _of_header(value: str, where: str) -> str:
    """Return what a header says, as the HTTP binding has it (3.1.3.2): quotes taken off, then percent signs decoded once."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = _QUOTED_PAIR.sub(r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise UserError(f"{where} is no percent-encoded UTF-8.") from None


def batch(body: bytes) -> list[Event]:
    """Read a batch; raises UserError that names the position of an event that is wrong."""
    items = _json(body, "the batch")
    if not isinstance(items, list):
        raise UserError("The batch is no JSON array of CloudEvents.")
    if len(items) > MAX_BATCH:
        raise UserError(f"The batch has {len(items)} events; send at most {MAX_BATCH} in one request.")
    return [from_json(item, f"event {number} of the batch") for number, item in enumerate(items)]


def strict_json(raw: bytes | str) -> Any:
    """Read JSON that can be written again: no infinite numbers, whole characters; raises ValueError."""
    form = json.loads(raw, parse_constant=_no_constant, parse_float=_finite)
    if b"\\u" in raw if isinstance(raw, bytes) else "\\u" in raw:
        json.dumps(form, ensure_ascii=False).encode()  # half of a surrogate pair can be escaped, but not written
    return form


def _json(raw: bytes, where: str) -> Any:
    try:
        return strict_json(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is no valid JSON: {error}. It must be a CloudEvent 1.0.") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _too_much(where: str, size: int) -> UserError:
    return UserError(
        f"{where} has {size} bytes of data; at most {MAX_DATA_BYTES} are taken. "
        "Put the data into the store and send its URI."
    )


def _checked(attributes: dict[str, Any], where: str) -> dict[str, Attribute]:
    if attributes.get("specversion") != SPECVERSION:
        raise UserError(f"{where} is no CloudEvent 1.0: specversion is {attributes.get('specversion')!r}, not '1.0'.")
    if len(attributes) > _MOST_ATTRIBUTES:
        raise UserError(f"{where} has {len(attributes)} attributes; at most {_MOST_ATTRIBUTES} are taken.")
    for name in ("id", "source", "type"):
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise UserError(f"{where} is no CloudEvent 1.0: {name} is missing, empty or no string.")
    checked: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if value is None:  # JSON format, 2.2: null is the same as absent
            continue
        if not _NAME.fullmatch(name):
            raise UserError(f"{where}: {name[:60]!r} is no attribute name; those are of a-z and 0-9.")
        checked[name] = _value(name, value, where)
    if "time" in checked:
        _check_time(str(checked["time"]), where)
    return checked


def _value(name: str, value: Any, where: str) -> Attribute:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise UserError(f"{where}: {name} is beyond a CloudEvents Integer (32 bits).")
        return value
    if not isinstance(value, str):
        raise UserError(f"{where}: {name} is a {type(value).__name__}; attributes are strings, integers or booleans.")
    limit = _LIMITS.get(name, _OTHER_LIMIT)
    if len(value) > limit:
        raise UserError(f"{where}: {name} has {len(value)} characters; at most {limit} are taken.")
    if _FORBIDDEN.search(value):
        raise UserError(f"{where}: {name} holds a control character or half of a surrogate pair.")
    return value


def _check_time(text: str, where: str) -> None:
    try:
        if not _RFC3339.fullmatch(text):
            raise ValueError
        datetime.fromisoformat(text.upper())
    except ValueError:
        raise UserError(f"{where}: time {text[:60]!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z.") from None
