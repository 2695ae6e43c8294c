"""Ranges of time as people name them, and the whole seconds of a calendar: hours and days in a time zone.

Everything is UTC seconds inside; a zone only decides where hours and days begin. A day in a zone may have 23 or 25 hours,
and where a clock was set back, an hour that comes twice is two.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError

Resolution = Literal["s", "m", "h", "d"]
EARLIEST_S, LATEST_S = 946_684_800, 253_370_764_800  # the years 2000 to 9998
_LENGTH_S = {"s": 1, "m": 60, "h": 3600}
_PHRASE = re.compile(r"(?P<which>this|last) (?P<unit>hour|day|week|month|year)")
_LAST = re.compile(r"last (?P<count>[1-9][0-9]{0,3}) (?P<unit>hour|day|week|month)s?")
_EXAMPLES = '"today", "yesterday", "this week", "last month", "last 7 days", "2026-07" or "2026-07-03"'


def zone(name: str) -> zoneinfo.ZoneInfo:
    """Return a time zone; raises UserError with the nearest name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as "Europe"
        known = sorted(zoneinfo.available_timezones())
        hint = nearest(name, known) if len(name) < 100 else ""
        if not hint.startswith("Did"):
            hint = "Write a name of the tz database, such as 'Europe/Berlin' or 'UTC'."
        raise UserError(f"There is no time zone {name[:100]!r}. {hint}") from None


@dataclass(frozen=True, slots=True)
class Span:
    """Whole seconds [start_s, end_s)."""

    start_s: int
    end_s: int


def parse(text: str, now_s: int, tz: tzinfo = UTC) -> Span:
    """Read a range such as `last month`; `last 7 days` are whole ones before today. Raises UserError with examples."""
    words = " ".join(text.lower().split())
    today = datetime.fromtimestamp(now_s, tz).date()
    if words in ("today", "yesterday"):
        words = "this day" if words == "today" else "last day"
    if (match := _PHRASE.fullmatch(words)) is not None:
        return _units(match["unit"], -1 if match["which"] == "last" else 0, 1, now_s, tz)
    if (match := _LAST.fullmatch(words)) is not None:
        return _units(match["unit"], -int(match["count"]), int(match["count"]), now_s, tz)
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}", words):
            first = date.fromisoformat(f"{words}-01")
            return Span(_day_s(first, tz), _day_s(_months(first, 1), tz))
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", words):
            first = date.fromisoformat(words)
            return Span(_day_s(first, tz), _day_s(first + timedelta(days=1), tz))
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{text[:60]!r} is no range of time. Write {_EXAMPLES} (today is {today}).")


def moment(text: str, tz: tzinfo = UTC) -> int:
    """Read a point in time (`2026-07-03`, `2026-07-03T12:00`, `...Z`) as a UTC second; without an offset it is in `tz`."""
    try:
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo is not None else at.replace(tzinfo=tz)
        second = at.timestamp()
        if not EARLIEST_S <= second < LATEST_S:
            raise ValueError("out of range")
    except (ValueError, OverflowError):
        raise UserError(
            f"{text[:60]!r} is no time. Write 2026-07-03, 2026-07-03T12:00 or 2026-07-03T12:00:00Z."
        ) from None
    if second != int(second):
        raise UserError(f"{text[:60]!r}: usage is in whole seconds; drop the fraction.")
    return int(second)


def bucket(second: int, resolution: Resolution, tz: tzinfo) -> Span:
    """Return the second, minute, hour or day of a zone that a UTC second is in."""
    if resolution == "d":
        day = datetime.fromtimestamp(second, tz).date()
        end_s = _day_s(day + timedelta(days=1), tz)
        if end_s <= second:  # midnight came twice, and this is the hour before the second time
            end_s = _day_s(day + timedelta(days=1), tz, fold=1)
        return Span(_day_s(day, tz), end_s)
    length = _LENGTH_S[resolution]
    offset_s = _offset_s(second, tz)
    start_s = second - (second + offset_s) % length
    end_s = start_s + length
    if _offset_s(start_s, tz) != offset_s:
        start_s = _change(start_s, second, tz)
    if _offset_s(end_s - 1, tz) != offset_s:
        end_s = _change(second, end_s - 1, tz)
    return Span(start_s, end_s)


def _change(low: int, high: int, tz: tzinfo) -> int:
    """Return the first second with another offset than `low`, which `high` has."""
    offset_s = _offset_s(low, tz)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset_s(middle, tz) == offset_s else (low, middle)
    return high


def _offset_s(second: int, tz: tzinfo) -> int:
    offset = datetime.fromtimestamp(second, tz).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def _day_s(day: date, tz: tzinfo, fold: int = 0) -> int:
    """Return the UTC second at which a date begins; where its midnight is left out, the first that there is."""
    return int(datetime(day.year, day.month, day.day, tzinfo=tz, fold=fold).timestamp())


def _months(day: date, more: int) -> date:
    months = day.year * 12 + day.month - 1 + more
    return date(months // 12, months % 12 + 1, 1)


def _units(unit: str, first: int, count: int, now_s: int, tz: tzinfo) -> Span:
    """Return `count` units, from the one that is `first` after the present one."""
    if unit == "hour":
        here = bucket(now_s, "h", tz).start_s
        return Span(here + first * 3600, here + (first + count) * 3600)
    today = datetime.fromtimestamp(now_s, tz).date()
    if unit in ("month", "year"):
        scale = 1 if unit == "month" else 12
        month = today if unit == "month" else today.replace(month=1)
        return Span(_day_s(_months(month, first * scale), tz), _day_s(_months(month, (first + count) * scale), tz))
    days = 7 if unit == "week" else 1
    monday = today - timedelta(days=today.weekday()) if unit == "week" else today
    return Span(
        _day_s(monday + timedelta(days=days * first), tz), _day_s(monday + timedelta(days=days * (first + count)), tz)
    )
