"""The moments of schedules: each becomes an event once, by whichever replica is first, also after a time of being away.

A moment is an event like any other (its source is the schedule, its id the moment), so the intake's deduplication makes
a firing exactly one, and the trail shows moments that were skipped beside those that started a run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from trainlet.core import envelopes, events
from trainlet.core.errors import UserError
from trainlet.core.triggers import SCHEDULE_DUE, Schedule
from trainlet_functions.state.database import Transaction
from trainlet_functions.triggers import flow, intake, moments, tables
from trainlet_functions.triggers.matching import Compiled, Matcher

_TABLE, _MATCHES = tables.triggers, tables.matches
LATE_S = 60.0  # a moment that is later than this was missed, and the catch-up policy decides
MOST = 1000  # moments that one look makes up for
SHOWN = 20  # missed moments that leave a trace each when nothing makes up for them


def next_ns(spec: Schedule, after_ns: int) -> int:
    """Return the first moment after a time; raises UserError when the schedule is wrong or has none."""
    return _next_ns(moments.parse(spec.when, tz=spec.tz), spec, after_ns)


def due(tx: Transaction, limit: int = 50) -> list[sa.Row[Any]]:
    """Return schedules whose moment has come."""
    return tx.all(sa.select(_TABLE).where(_TABLE.c.tick_ns <= tx.now_ns).order_by(_TABLE.c.tick_ns).limit(limit))


def tick(tx: Transaction, project: str, name: str, matcher: Matcher) -> int:
    """Take in the moments of a schedule that have come; returns how many wait for a run now."""
    this = (_TABLE.c.project == project) & (_TABLE.c.name == name)
    row = tx.one(sa.select(_TABLE).where(this))
    if row is None or row.tick_ns is None or row.tick_ns > tx.now_ns:
        return 0
    spec = Schedule.model_validate_json(row.spec)
    schedule = moments.parse(spec.when, tz=spec.tz)
    come, omitted = _come(tx, spec, schedule, row.tick_ns)
    following = _next_ns(schedule, spec, come[-1])
    tx.run(_TABLE.update().where(this).values(tick_ns=following))
    last_ns = come[-1] if following > tx.now_ns else None  # None: there are still more to make up for
    busy = flow.open_runs(tx, project, name) if spec.flow.concurrency == "forbid" else []
    count = 0
    for moment_ns in come:
        reason = _skipped(tx, spec, moment_ns, last_ns, busy)
        if reason is not None and omitted and moment_ns == come[0]:
            reason += f"; so were all since {_text(omitted)}"
        if reason is None and row.state == "paused":
            reason = f"the schedule is paused: {row.reason}"
        count += _take(tx, project, Compiled(name, spec.flow, _EVERYTHING), moment_ns, reason, matcher)
    return count


def _next_ns(schedule: moments.Schedule, spec: Schedule, after_ns: int) -> int:
    found = schedule.next_after(_moment(after_ns))
    if found is None:
        raise UserError(f"The schedule {spec.when!r} in {spec.tz} has no next moment.")
    return _ns(found)


def _come(tx: Transaction, spec: Schedule, schedule: moments.Schedule, first_ns: int) -> tuple[list[int], int]:
    """Return the moments that have come, and the first one of those that leave no trace of their own, or 0."""
    now = _moment(tx.now_ns)
    come = [first_ns, *(_ns(one) for one in schedule.between(_moment(first_ns), now, MOST - 1))]
    if spec.catch_up == "all" or len(come) < MOST:
        return come, 0
    return [_ns(one) for one in schedule.last(_moment(first_ns), now, SHOWN)], first_ns


def _skipped(tx: Transaction, spec: Schedule, moment_ns: int, last_ns: int | None, busy: list[str]) -> str | None:
    if spec.catch_up == "none" and tx.now_ns - moment_ns > LATE_S * 1e9:
        return "missed while the platform was away (catch_up=none)"
    if spec.catch_up == "latest" and moment_ns != last_ns:
        return "missed, and a later moment stands for it (catch_up=latest)"
    return f"{busy[0]} runs (concurrency=forbid)" if busy else None


def _take(tx: Transaction, project: str, one: Compiled, moment_ns: int, reason: str | None, matcher: Matcher) -> int:
    at = _text(moment_ns)
    source = f"{envelopes.source(project)}/schedules/{one.name}"
    event = events.make(SCHEDULE_DUE, source, at, {"at": at, "schedule": one.name}, time=at, subject=one.name)
    taken = intake.take(tx, project, [event], matcher)
    if not taken.numbers:
        return 0
    if reason is None:
        intake.match(tx, project, [(one, taken.numbers[0], event)])
        return 1
    base = {"project": project, "trigger": one.name, "event": taken.numbers[0], "replay": 0, "run_id": None}
    tx.insert(_MATCHES, **base, state="skipped", reason=reason, matched_ns=tx.now_ns)
    return 0


def _moment(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC)


def _ns(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000_000


def _text(wall_ns: int) -> str:
    return _moment(wall_ns).isoformat().replace("+00:00", "Z")


class _Everything:
    """The filter of a schedule: its own moments are given to it directly."""

    def matches(self, event: events.Event) -> bool:
        return True


_EVERYTHING: Any = _Everything()
