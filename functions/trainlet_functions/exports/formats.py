"""How FOCUS writes numbers, times, units and key-value pairs, and what they are once read.

What cannot be read stays the text that it was, so that whoever checks can name it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from trainlet.core.clocks import rfc3339
from trainlet_functions.exports.columns import SCALE

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[Ee](-?\d{1,3}))?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_TIMES = "Year|Month|Day|Hour|Minute|Second"
_SIZES = "b|B|[KMGTPE]i?[bB]"
_NOUN = r"[A-Z][A-Za-z]*(?: [A-Z][A-Za-z]*)*"
_UNIT = re.compile(
    rf"(?:[1-9]\d* )?(?:(?P<plural>{_NOUN}s|{_SIZES})|(?P<part>{_NOUN}|{_SIZES})-(?:{_TIMES})s)"
    rf"(?:/(?:{_TIMES}|[1-9]\d* (?:{_TIMES})s))?",
    re.ASCII,
)
_LISTED = re.compile(r"(?i)(?:giga|mega|kilo|tera|peta|exa)(?:byte|bit)s?|bytes?|bits?")


def number(text: str) -> int | str:
    """Return nano-units, or the text where it is no number with at most nine decimals."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    sign, whole, part, exponent = found[1], found[2], found[3] or "", int(found[4] or 0)
    digits, power = int(whole + part), SCALE - len(part) + exponent
    if power < 0:
        digits, rest = divmod(digits, int(10**-power))
        if rest:
            return text
    else:
        digits *= int(10**power)
    return -digits if sign else digits


def seconds(text: str) -> int | str:
    """Return UTC seconds since 1970, or the text where it is no time such as `2026-07-01T00:00:00Z`."""
    if _TIME.fullmatch(text) is None:
        return text
    try:
        return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())
    except (ValueError, OverflowError):
        return text


def moment(second: int) -> str:
    """Return a time as `seconds` reads it."""
    return rfc3339(second * 10**9).replace(".000Z", "Z")


def is_unit(text: str) -> bool:
    """Say whether a text is a unit such as `GPU-Seconds`, `1000 Tokens` or `GB/Month`."""
    return _UNIT.fullmatch(text) is not None and not any(map(_LISTED.fullmatch, re.split(r"[ /-]", text)))


def pairs(text: str) -> dict[str, Any] | None:
    """Return a flat object of JSON, None where it is none: another type, a key twice, an object or a list within."""
    twice = False

    def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        made = dict(items)
        twice = twice or len(made) != len(items)
        return made

    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=_refused)
    except ValueError:
        return None
    if not isinstance(found, dict) or twice or any(isinstance(one, dict | list) for one in found.values()):
        return None
    return found


def _refused(text: str) -> None:
    raise ValueError(text)
