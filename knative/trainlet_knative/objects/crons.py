"""Schedules in the dialect of Knative's PingSource, as far as both mean the same moments.

PingSource reads what the Go library `robfig/cron` calls standard: five fields, or `@daily` and the like. It knows no `L`,
`#` or weekday 7, and takes `*/2` as a day of the month for a restriction where cron does not. What it would read otherwise
is left out: the training API's own clock has every schedule.
"""

from __future__ import annotations

import re

from trainlet.core.durations import parse_duration_s

_NAMED = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
_MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAYS = "SUN|MON|TUE|WED|THU|FRI|SAT"
_MINUTE_S = 60


def _field(names: str) -> re.Pattern[str]:
    value = rf"([0-9]+|{names})" if names else "[0-9]+"
    part = rf"{value}(-{value}(/[0-9]+)?)?"
    return re.compile(rf"\*(/[0-9]+)?|{part}(,{part})*")


_FIELDS = tuple(map(_field, ("", "", "", _MONTHS, _WEEKDAYS)))


def translate(when: str, tz: str) -> tuple[str, str] | None:
    """Return `schedule` and `timezone` of a PingSource for a schedule that is known to be good, or None."""
    text = " ".join(when.split())
    if text.startswith("every "):
        found = _interval(parse_duration_s(text.removeprefix("every "), f"the schedule {when!r}: "))
        return None if found is None else (found, "UTC")
    if text.lower() in _NAMED:
        return text.lower(), tz
    fields = text.upper().split()
    if len(fields) != 5 or not all(known.fullmatch(field) for known, field in zip(_FIELDS, fields, strict=True)):
        return None
    day, weekday = fields[2], re.sub(r"(?<![0-9A-Z/-])7(?![0-9-])", "0", fields[4])
    if "7" in weekday.replace("/7", ""):
        return None  # a range up to Sunday
    if ("*/" in day and weekday != "*") or ("*/" in weekday and day != "*"):
        return None
    return " ".join([*fields[:4], weekday]), tz


def _interval(seconds: float) -> str | None:
    """Return the cron expression of an interval counted from 1970, where a day of UTC holds it a whole number of times."""
    if seconds % _MINUTE_S:
        return None
    minutes = int(seconds) // _MINUTE_S
    if minutes < 60 and 60 % minutes == 0:
        return "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
    hours = minutes // 60
    if minutes % 60 or hours > 24 or 24 % hours:
        return None
    return {1: "0 * * * *", 24: "0 0 * * *"}.get(hours, f"0 */{hours} * * *")
