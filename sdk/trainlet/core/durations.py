"""Durations, sizes and sums of money as people write them: `"2h"`, `"16Gi"`, `"20 USD"`.

Everything becomes one unit of the code: seconds, bytes, nano-units of a currency. A mistake is a UserError that says
how to write it; the caller passes `what` (such as `timeout=`), so that the message names the option.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from trainlet.core.errors import UserError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SECOND_WORDS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "day": "d", "days": "d", "week": "w", "weeks": "w",
}  # fmt: skip
_BYTES = {
    "": 1, "B": 1,
    "k": 1000, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_MONEY = re.compile(r"(?:(?P<before>[A-Za-z]{3}|\$)\s*)?(?P<amount>[\d_,]*\.?\d+)\s*(?P<after>[A-Za-z]{3}|\$)?")


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Return `Did you mean 'x'?` for a misspelt word, else the list of what is known."""
    lowered = {one.lower(): one for one in known}
    close = difflib.get_close_matches(word.lower(), lowered, n=2, cutoff=0.55)
    if close:
        return "Did you mean " + " or ".join(repr(lowered[one]) for one in close) + "?"
    return "Known are: " + ", ".join(known) + "."


def parse_duration_s(value: Any, what: str) -> float:
    """Return seconds from `"2h"`, `"1h30m"`, `"90 s"`, a number of seconds or a timedelta; it must be above zero."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _duration_text(value, what)
    else:
        raise UserError(f'{what}{value!r} is no duration. Write "2h", "90s", a number of seconds or a timedelta.')
    if not math.isfinite(seconds) or seconds <= 0:
        raise UserError(f'{what}{value!r} must be longer than zero. Write "2h", "90s", or leave the option out.')
    return seconds


def _duration_text(text: str, what: str) -> float:
    total, position = 0.0, 0
    stripped = text.strip()
    while position < len(stripped):
        match = _DURATION_PART.match(stripped, position)
        if match is None:
            raise UserError(f'{what}{text!r} is no duration. Write a number and a unit: "90s", "30m", "2h", "1h30m".')
        number, unit = match.groups()
        plain = unit if unit in _SECONDS else _SECOND_WORDS.get(unit.lower(), unit.lower())
        if plain not in _SECONDS:
            if not unit:
                hint = f'Write "{number}s" or the number {number} for seconds.'
            else:
                hint = f'Units are ms, s, m, h, d, w, as in "{number}{_near_unit(plain)}".'
            raise UserError(f"{what}{text!r}: {unit or 'a missing unit'} is no unit of time. {hint}")
        total += float(number) * _SECONDS[plain]
        position = match.end()
    return total


def _near_unit(unit: str) -> str:
    close = difflib.get_close_matches(unit, [*_SECONDS, *_SECOND_WORDS], n=1)
    if close:
        return _SECOND_WORDS.get(close[0], close[0])
    return unit[0] if unit[:1] in _SECONDS else "h"


def parse_size_bytes(value: Any, what: str) -> int:
    """Return bytes from `"16Gi"`, `"500MB"` or a number of bytes; it must be above zero."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise UserError(f'{what}{value!r} is no size. Write a number and a unit: "512Mi", "16Gi", "64GB".')
        number, unit = match.groups()
        if unit not in _BYTES:
            near = {one.lower(): one for one in _BYTES}.get(unit.lower(), "Gi")
            raise UserError(f'{what}{value!r}: {unit} is no unit of size. Did you mean "{number}{near}"?')
        size = int(Decimal(number) * _BYTES[unit])
    else:
        raise UserError(f'{what}{value!r} is no size. Write "16Gi", "512Mi" or a number of bytes.')
    if size <= 0:
        raise UserError(f'{what}{value!r} must be more than zero. Write "16Gi", or leave the option out.')
    return size


def parse_money_nano(value: Any, what: str, currency: str = "USD") -> int:
    """Return nano-units of the currency from `"20 USD"`, `"$2.50"` or a number; more than nine decimals is an error."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise UserError(f'{what}{value!r} is no sum of money. Write "20 {currency}" or a number.')
    text, unit = str(value).strip(), currency
    if isinstance(value, str):
        match = _MONEY.fullmatch(text)
        if match is None or (match["before"] and match["after"]):
            raise UserError(f'{what}{value!r} is no sum of money. Write "20 {currency}" or a number.')
        text = match["amount"].replace(",", "").replace("_", "")
        unit = (match["before"] or match["after"] or currency).upper().replace("$", "USD")
    if unit != currency:
        raise UserError(f'{what}{value!r}: prices are in {currency}. Write "{text} {currency}".')
    try:
        nano = Decimal(text) * 1_000_000_000
    except InvalidOperation:
        raise UserError(f'{what}{value!r} is no sum of money. Write "20 {currency}" or a number.') from None
    if not nano.is_finite() or nano <= 0 or nano != nano.to_integral_value():
        raise UserError(f"{what}{value!r} must be above zero, with at most nine decimals.")
    return int(nano)
