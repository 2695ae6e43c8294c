"""Ranges as people name them, in their time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from trainlet.core import ranges
from trainlet.core.errors import UserError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 29, 12, 30, tzinfo=BERLIN)  # the day has 23 hours


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("today", "2026-03-29", "2026-03-30"),
        ("yesterday", "2026-03-28", "2026-03-29"),
        ("this week", "2026-03-23", "2026-03-30"),
        ("last month", "2026-02-01", "2026-03-01"),
        ("This  Month", "2026-03-01", "2026-04-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("last 7 days", "2026-03-22", "2026-03-29"),
        ("last 14 months", "2025-01-01", "2026-03-01"),
        ("2024-02", "2024-02-01", "2024-03-01"),
        ("2025-12", "2025-12-01", "2026-01-01"),
        ("2024-02-29", "2024-02-29", "2024-03-01"),
        ("last hour", "2026-03-29T11:00", "2026-03-29T12:00"),
    ],
)
def test_a_phrase_is_whole_days_of_the_zone(text: str, start: str, end: str) -> None:
    span = ranges.parse(text, int(NOW.timestamp()), BERLIN)
    assert span == ranges.Span(ranges.moment(start, BERLIN), ranges.moment(end, BERLIN))


def test_a_day_on_which_a_clock_is_set_has_23_or_25_hours() -> None:
    days = [ranges.parse(text, 0, BERLIN) for text in ("2026-03-29", "2026-10-25", "2026-07-01")]
    assert [(day.end_s - day.start_s) // 3600 for day in days] == [23, 25, 24]


@pytest.mark.parametrize("text", ["", "soon", "2026-13", "2025-02-29", "last 0 days", "0000-01-01", "9999-12"])
def test_what_is_no_range_is_told_with_examples(text: str) -> None:
    with pytest.raises(UserError, match="last 7 days"):
        ranges.parse(text, int(NOW.timestamp()), BERLIN)


def test_a_time_has_the_offset_that_it_names_or_else_that_of_the_zone() -> None:
    assert ranges.moment("2026-07-03T12:00:00Z", BERLIN) == ranges.moment("2026-07-03T14:00", BERLIN)
    for text in ("noon", "2026-07-03T12:00:00.5Z", "0001-01-01"):
        with pytest.raises(UserError):
            ranges.moment(text, ZoneInfo("Asia/Tokyo"))
