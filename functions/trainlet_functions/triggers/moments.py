"""The moments of schedules: cron expressions by the clock of a time zone, and intervals.

Where a clock is moved, a moment of a certain time of day is neither lost nor doubled, as Debian's cron has it: a time
that does not exist that day (02:30 when the clock goes from 02:00 to 03:00) comes at the first time that does, and one
that exists twice comes the first time. Expressions whose minute or hour begins with `*` go by the hours as they pass:
the hour that is left out is, and the one that comes twice does. Intervals count seconds and know no clock.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import cronsim

from trainlet.core import ranges
from trainlet.core.durations import nearest, parse_duration_s
from trainlet.core.errors import UserError

_EVERY = "every "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = "Write minute, hour, day, month and weekday, such as '0 3 * * *' or '30 6 * * MON-FRI', or 'every 6h'."
_SEASON = timedelta(days=7)  # no clock is moved and moved back in less
_MOST_TRIES = 200  # a clock is moved by hours: more candidates than this in the past or in a gap there are not


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that was read. `every_s` is set for an interval, counted from 1970, else `cron` and `zone` are."""

    text: str
    every_s: int = 0
    cron: str = ""
    zone: zoneinfo.ZoneInfo | None = None

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first moment after another, in UTC; None when there is none in the next fifty years."""
        if self.every_s:
            count = int(moment.timestamp()) // self.every_s + 1
            return _EPOCH + timedelta(seconds=count * self.every_s)
        for _, found in zip(range(_MOST_TRIES), self._candidates(moment), strict=False):
            if found > moment:
                return found
        return None

    def between(self, after: datetime, until: datetime, limit: int) -> Iterator[datetime]:
        """Yield the moments after one time and not after another, at most so many."""
        for _ in range(limit):
            found = self.next_after(after)
            if found is None or found > until:
                return
            yield found
            after = found

    def last(self, after: datetime, until: datetime, count: int) -> list[datetime]:
        """Return the last moments after one time and not after another, at most so many, the oldest first.

        Halves the time instead of going through all of them: years of minutes are over at once.
        """
        found: list[datetime] = []
        while len(found) < count and (first := self.next_after(after)) is not None and first <= until:
            low, high = int(after.timestamp()), int(until.timestamp())
            while high - low > 1:  # the first moment after `low` is one of them, the first after `high` is not
                middle = (low + high) // 2
                following = self.next_after(datetime.fromtimestamp(middle, UTC))
                low, high = (middle, high) if following is not None and following <= until else (low, middle)
            last = self.next_after(datetime.fromtimestamp(low, UTC)) or first
            found.insert(0, last)
            until = last - timedelta(seconds=1)
        return found

    def _candidates(self, moment: datetime) -> Iterator[datetime]:
        """Yield what cron makes of a time: also what is past already, in the hour that comes twice."""
        zone = self.zone or UTC
        if any(field.startswith("*") for field in self.cron.split()[:2]):
            yield from self._by_hours(moment)
            return
        for wanted in cronsim.CronSim(self.cron, moment.astimezone(zone).replace(tzinfo=None)):
            if not _exists(zone, wanted) and not _exists(zone, wanted.replace(hour=12, minute=0)):
                continue  # the whole day is left out: Samoa had no 30 December 2011
            at = wanted
            while not _exists(zone, at):
                at += timedelta(minutes=1)
            yield at.replace(tzinfo=zone).astimezone(UTC)

    def _by_hours(self, moment: datetime) -> Iterator[datetime]:
        """Yield every minute after a time whose clock reads what the expression asks for.

        Between two moves of the clock its time is UTC and an offset, so cron needs to know of no zone. (Told of one,
        cronsim counts whole hours over a move by half of one, as on Lord Howe Island, and leaves moments out.)
        """
        zone = self.zone or UTC
        offset = _offset(zone, moment)
        while True:
            shift = None
            for found in cronsim.CronSim(self.cron, (moment + offset).replace(tzinfo=None)):
                as_utc = found.replace(tzinfo=UTC) - offset
                shift = _next_shift(zone, moment, as_utc, offset)
                if shift is not None:
                    break
                yield as_utc
                moment = as_utc
            if shift is None:
                return
            moment, offset = shift - timedelta(seconds=1), _offset(zone, shift)


def _exists(zone: tzinfo, local: datetime) -> bool:
    return local.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) == local


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _next_shift(zone: tzinfo, after: datetime, until: datetime, offset: timedelta) -> datetime | None:
    """Return the first second after one time and not after another at which the clock is not at an offset."""
    while after < until:
        step = min(after + _SEASON, until)
        if _offset(zone, step) == offset:
            after = step
            continue
        low, high = int(after.timestamp()), int(step.timestamp())
        while high - low > 1:
            middle = (low + high) // 2
            same = _offset(zone, datetime.fromtimestamp(middle, UTC)) == offset
            low, high = (middle, high) if same else (low, middle)
        return datetime.fromtimestamp(high, UTC)
    return None


def parse(when: str, *, tz: str = "UTC") -> Schedule:
    """Read a cron expression of five fields, one of `@hourly` to `@yearly`, or `every 6h`; raises UserError."""
    zone = ranges.zone(tz)
    text = " ".join(when.split())
    if text.startswith(_EVERY):
        seconds = parse_duration_s(text.removeprefix(_EVERY), f"the schedule {when!r}: ")
        if seconds < 1 or seconds != int(seconds):
            raise UserError(f"The schedule {when!r} must be of whole seconds, at least one.")
        return Schedule(text, every_s=int(seconds))
    cron = text
    if text.startswith("@"):
        if text.lower() not in _NAMED:
            raise UserError(f"The schedule {when!r} is not known. {nearest(text, list(_NAMED))}")
        cron = _NAMED[text.lower()]
    if len(cron.split()) != 5:
        raise UserError(f"The schedule {when!r} has {len(cron.split())} fields, and cron has five. {_FIELDS}")
    try:
        cronsim.CronSim(cron, _EPOCH)
    except cronsim.CronSimError as error:
        raise UserError(f"The schedule {when!r} can never come: {str(error).lower()}. {_FIELDS}") from None
    return Schedule(text, cron=cron, zone=zone)
