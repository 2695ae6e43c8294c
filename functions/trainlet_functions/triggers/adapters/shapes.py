"""What adapters have in common: JSON that is read strictly, a vendor's shape that is checked, ids and texts that hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.models import canonical_json, sha256_hex

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_WORD = re.compile(r"[^a-z0-9_]+")


class Shape(BaseModel):
    """A part of a vendor's message; what is not named here is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


Model = TypeVar("Model", bound=Shape)


def loads(raw: bytes | str, what: str) -> Any:
    """Read JSON; raises UserError."""
    try:
        return events.strict_json(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"This is no {what}: it is no valid JSON ({error}).") from None


def content(headers: Mapping[str, str], raw: bytes, what: str) -> Any:
    """Return what was sent, or the data of the CloudEvent that a source on the way has put it into."""
    if "ce-specversion" in headers or headers.get("content-type", "").lower().startswith("application/cloudevents"):
        data = events.from_http(headers, raw).data
        return loads(data, what) if isinstance(data, str) else data
    return loads(raw, what)


def read(model: type[Model], form: Any, what: str) -> Model:
    """Check a form; raises UserError that names the first fields that are wrong."""
    try:
        return model.model_validate(form)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in error.errors()[:3])
        raise UserError(f"This is no {what}: {wrong}.") from None


def identity(*parts: Any) -> str:
    """Return an id that follows from what was said."""
    return sha256_hex(canonical_json(list(parts)))[:32]


def text(value: Any, limit: int = 1000) -> str | None:
    """Return an attribute of what may hold anything: bounded, without what a CloudEvents String may not hold."""
    found = _CONTROL.sub("?", str(value))[:limit] if value not in (None, "") else ""
    return found or None


def word(value: str) -> str:
    """Return a part of an event's type."""
    return _WORD.sub("", value.lower())[:100]


def moment(value: str | None) -> str | None:
    """Return a time as CloudEvents has it, or None for what is none."""
    return value if value is not None and _TIME.fullmatch(value) else None
