"""Places that an event may name: URIs below one of those that a subscription lists.

Whoever sends events chooses what they hold, and a run reads what it is told to with the rights of its project. So where
`places` are given, every URI that an event brings into a parameter must be one of them or lie below it, spelled so that
no reader understands another place: no `..`, no other case of the scheme, no second slash left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from trainlet.core.errors import UserError

_URI = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:/")
_PLACE = re.compile(r"[a-z][a-z0-9+.-]+://[^\s?#]*")
_FILE = "file:///"


def check(places: Sequence[str]) -> None:
    """Raise UserError for a place that is none."""
    for place in places:
        if not _PLACE.fullmatch(place) or place.endswith("://") or _climbs(place):
            raise UserError(f"places: {place!r} is no place. Write s3://bucket/prefix or file:///folder.")


def check_value(what: str, value: Any, places: Sequence[str]) -> None:
    """Raise UserError for a URI, anywhere in a value, that lies in none of the places; without places all may come."""
    if not places:
        return
    if isinstance(value, dict):
        for one in (*value, *value.values()):
            check_value(what, one, places)
    elif isinstance(value, list):
        for one in value:
            check_value(what, one, places)
    elif isinstance(value, str) and _is_place(value, places) and not any(_lies_in(value, one) for one in places):
        raise UserError(f"{what} gives {value[:200]!r}, which lies in none of {', '.join(places)} (places=).")


def _is_place(text: str, places: Sequence[str]) -> bool:
    """Say whether a text names a place: a URI, or a path where folders are among the places."""
    folders = any(place.startswith(_FILE) for place in places)
    return bool(_URI.match(text)) or (folders and text.lstrip().startswith(("/", "~")))


def _lies_in(text: str, place: str) -> bool:
    if _climbs(text):
        return False
    root = place.rstrip("/")
    if place.startswith(_FILE) and text.startswith("/"):
        text, root = text, unquote(root.removeprefix("file://"))
    return text == root or text == root + "/" or text.startswith(root + "/")


def _climbs(text: str) -> bool:
    """Say whether a reader might understand it as another place, escaped once or twice."""
    plain = unquote(unquote(text))
    return any(part in (".", "..") for part in re.split(r"[/\\]", plain)) or "\\" in plain or "\x00" in plain
