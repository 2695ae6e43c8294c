"""Schedules go by the clock of a time zone, over twenty years of moved clocks, and lose or double nothing on the way."""

from __future__ import annotations

import itertools
import zoneinfo
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlet.core.errors import UserError
from trainlet_functions.triggers import moments

# Clocks moved by an hour, by half of one, at midnight, by a whole day, not at all, and by a government each year anew.
ZONES = [
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "Africa/Casablanca",
    "Pacific/Apia", "Asia/Kathmandu", "America/Caracas", "Asia/Pyongyang", "Pacific/Chatham", "Africa/Cairo", "UTC",
]  # fmt: skip
BEGIN, END = datetime(2008, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
times = st.integers(int(BEGIN.timestamp()), int(END.timestamp())).map(lambda at: datetime.fromtimestamp(at, UTC))
zones = st.sampled_from(ZONES)
daily = st.tuples(st.integers(0, 59), st.integers(0, 23))
fields = st.tuples(
    st.sampled_from(["*", "*/7", "0", "17", "0,30", "5-20/5"]),
    st.sampled_from(["*", "*/5", "0", "2", "3,23", "1-4"]),
    st.sampled_from(["*", "1", "31", "L", "*/10", "29"]),
    st.sampled_from(["*", "2,3", "*/3", "OCT-DEC"]),
    st.sampled_from(["*", "0", "MON-FRI", "7", "5L", "MON#1"]),
)


def near_a_moved_clock(zone: str, at: datetime) -> datetime:
    """Return the last time before another, or the first one of these years, at which the clock was about to be moved."""
    info, day = zoneinfo.ZoneInfo(zone), timedelta(days=1)
    while at > BEGIN and (at + day).astimezone(info).utcoffset() == at.astimezone(info).utcoffset():
        at -= day
    return at


def in_utc(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]


def first(when: str, tz: str, after: str, count: int) -> list[datetime]:
    return list(moments.parse(when, tz=tz).between(*in_utc(after), END, count))


def test_on_the_day_that_has_no_0230_it_comes_when_the_clock_goes_on() -> None:
    found = first("30 2 * * *", "Europe/Berlin", "2026-03-28 00:00", 3)
    assert found == in_utc("2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30")


def test_on_the_day_that_has_0230_twice_it_comes_once() -> None:
    found = first("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", 2)
    assert found == in_utc("2026-10-25 00:30", "2026-10-26 01:30")
    between_the_two = "2026-10-25 01:10"
    assert first("30 2 * * *", "Europe/Berlin", between_the_two, 1) == in_utc("2026-10-26 01:30")


def test_what_goes_by_hours_leaves_out_and_doubles_the_hour_as_the_clock_does() -> None:
    assert first("*/30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", 1) == in_utc("2026-03-30 00:00")
    found = first("*/30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", 4)
    assert found == in_utc("2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30")
    hourly = first("0 * * * *", "Europe/Berlin", "2026-10-24 22:30", 30)
    assert {later - earlier for earlier, later in itertools.pairwise(hourly)} == {timedelta(hours=1)}


def test_a_clock_that_is_moved_by_half_an_hour_loses_no_moment() -> None:
    found = first("0 */5 * * *", "Australia/Lord_Howe", "2008-10-04 13:00", 3)
    assert found == in_utc("2008-10-04 13:30", "2008-10-04 18:00", "2008-10-04 23:00")
    found = first("*/15 2 * * *", "Australia/Lord_Howe", "2026-04-04 13:00", 3)
    assert found == in_utc("2026-04-04 15:30", "2026-04-04 15:45", "2026-04-04 16:00")
    found = first("*/7 */5 * OCT-DEC 0", "Australia/Lord_Howe", "2008-10-04 16:30", 2)
    assert found == in_utc("2008-10-04 18:00", "2008-10-04 18:07")


def test_a_day_that_begins_at_one_has_its_midnight_then() -> None:
    assert first("0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00", 1) == in_utc("2018-11-04 03:00")
    assert first("*/5 0 4 11 *", "America/Sao_Paulo", "2018-11-03 12:00", 1) == in_utc("2019-11-04 03:00")


def test_a_day_that_is_left_out_is_left_out_whole() -> None:
    found = first("0 1 * * *", "Pacific/Apia", "2011-12-29 00:00", 3)
    assert found == in_utc("2011-12-29 11:00", "2011-12-30 11:00", "2011-12-31 11:00")


@given(daily, zones, times)
@settings(max_examples=150, deadline=None)
def test_a_time_of_day_comes_exactly_once_on_every_day_that_there_is(
    at: tuple[int, int], tz: str, start: datetime
) -> None:
    zone = zoneinfo.ZoneInfo(tz)
    schedule = moments.parse(f"{at[0]} {at[1]} * * *", tz=tz)
    begin = near_a_moved_clock(tz, start) - timedelta(days=2)
    found = list(schedule.between(begin, begin + timedelta(days=5), 10))
    asked, locals_ = time(at[1], at[0]), [one.astimezone(zone) for one in found]
    # A clock that is moved over midnight (Pyongyang, 4 May 2018, 23:30) makes a moment of that day come on the next.
    days = [local.date() - timedelta(days=asked > local.time()) for local in locals_]
    assert len(set(days)) == len(days)
    missing = {days[0] + timedelta(days=number) for number in range((days[-1] - days[0]).days + 1)} - set(days)
    # Samoa had no 30 December 2011 when it changed the side of the date line.
    assert all(tz == "Pacific/Apia" and str(day) == "2011-12-30" for day in missing)
    for day, local in zip(days, locals_, strict=True):
        exists = datetime.combine(day, asked, zone).astimezone(UTC).astimezone(zone)
        same = local.time() == asked
        assert same or exists.time() != asked, "another time only when this one does not exist"
        assert local.fold == 0 or not same, "the first of two"


@given(fields, zones, times)
@settings(max_examples=80, deadline=None)
def test_moments_grow_and_none_is_missed_from_wherever_one_looks(
    parts: tuple[str, ...], tz: str, start: datetime
) -> None:
    try:
        schedule = moments.parse(" ".join(parts), tz=tz)
    except UserError:
        return  # the 31st of February
    begin = near_a_moved_clock(tz, start) - timedelta(hours=30)
    found = list(schedule.between(begin, END + timedelta(days=20000), 60))
    assert found == sorted(set(found)) and found[0] > begin
    for earlier, later in itertools.pairwise(found):
        for at in (earlier, earlier + (later - earlier) / 2, later - timedelta(seconds=1)):
            assert schedule.next_after(at.replace(microsecond=0)) == later
    assert schedule.last(begin, found[-1], 7) == found[-7:]


MINUTES = {"*/7": range(0, 60, 7), "0": [0], "*": range(60), "5-20/5": range(5, 21, 5)}
HOURS = {"*/5": range(0, 24, 5), "*": range(24)}


@given(st.sampled_from(list(MINUTES)), st.sampled_from(list(HOURS)), zones, times)
@settings(max_examples=40, deadline=None)
def test_what_goes_by_hours_comes_at_every_minute_that_the_clock_shows(
    minute: str, hour: str, tz: str, start: datetime
) -> None:
    begin, zone = near_a_moved_clock(tz, start).replace(second=0), zoneinfo.ZoneInfo(tz)
    clock = ((begin + timedelta(minutes=number)) for number in range(1, 49 * 60))
    shown = [
        at for at in clock if (local := at.astimezone(zone)).minute in MINUTES[minute] and local.hour in HOURS[hour]
    ]
    schedule = moments.parse(f"{minute} {hour} * * *", tz=tz)
    assert list(schedule.between(begin, begin + timedelta(minutes=49 * 60 - 1), len(shown) + 1)) == shown


@given(st.integers(1, 10**7), times)
@settings(deadline=None)
def test_an_interval_counts_seconds_whatever_clocks_do(every_s: int, start: datetime) -> None:
    schedule = moments.parse(f"every {every_s}s", tz="Europe/Berlin")
    one, two = list(schedule.between(start, END + timedelta(days=300), 2))
    assert two - one == timedelta(seconds=every_s) and timedelta() < one - start <= timedelta(seconds=every_s)
    assert int(one.timestamp()) % every_s == 0


@given(st.text("0123456789*/,-L#WMONJAN@ xy?", max_size=20), st.sampled_from(["UTC", "Europe/Berlin"]))
@settings(deadline=None)
def test_any_text_is_a_schedule_or_an_error_in_words(text: str, tz: str) -> None:
    try:
        schedule = moments.parse(text, tz=tz)
    except UserError as error:
        assert "schedule" in str(error)
    else:
        schedule.next_after(BEGIN)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("0 0 30 2 *", "can never come: bad day-of-month"),
        ("61 * * * *", "bad minute"),
        ("0 0 0 * * *", "has 6 fields, and cron has five"),
        ("daily", "such as '0 3 \\* \\* \\*'"),
        ("@dayly", "Did you mean '@daily'"),
        ("every 1.5s", "whole seconds"),
        ("every fortnight", "no duration"),
    ],
)
def test_a_schedule_that_is_none_says_what_to_write(when: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        moments.parse(when)


@pytest.mark.parametrize("tz", ["Europe/Berln", "Europe", "../../etc/passwd", "", "\0", "x" * 300])
def test_a_time_zone_that_is_none_says_which_are_near(tz: str) -> None:
    with pytest.raises(UserError, match=r"no time zone.*(Did you mean|tz database)"):
        moments.parse("0 3 * * *", tz=tz)


def test_years_of_missed_minutes_are_over_at_once() -> None:
    schedule = moments.parse("* * * 1 *")
    found = schedule.last(BEGIN, datetime(2027, 2, 15, tzinfo=UTC), 3)
    assert found == in_utc("2027-01-31 23:57", "2027-01-31 23:58", "2027-01-31 23:59")
