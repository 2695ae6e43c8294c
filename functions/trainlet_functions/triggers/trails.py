"""The trail of an event: what it matched, which runs that started, and why something waits or was skipped."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.errors import NotFoundError
from trainlet.core.triggers import EventView, MatchView
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction
from trainlet_functions.triggers import intake, registry, tables
from trainlet_functions.triggers.matching import Matcher, compiled

_EVENTS, _MATCHES, _TRIGGERS, _RUNS = tables.events, tables.matches, tables.triggers, schema.runs


def get(tx: Transaction, project: str, number: int) -> EventView:
    """Return an event with its matches; raises NotFoundError."""
    return _view(_row(tx, project, number), _matches(tx, [number]).get(number, []), whole=True)


def by_id(tx: Transaction, project: str, event_id: str) -> list[EventView]:
    """Return the events with this id, one of each source."""
    inbox = tables.inbox
    where = (inbox.c.project == project) & (inbox.c.id == event_id)
    numbers = [row.event for row in tx.all(sa.select(inbox.c.event).where(where).order_by(inbox.c.event))]
    return [get(tx, project, number) for number in numbers]


def list_(tx: Transaction, project: str, before: int | None, limit: int, state: str | None) -> list[EventView]:
    """Return events, the newest first; with a state, those that have a match in it."""
    where = _EVENTS.c.project == project
    if before is not None:
        where &= _EVENTS.c.number < before
    if state is not None:
        some = sa.select(_MATCHES.c.id).where((_MATCHES.c.event == _EVENTS.c.number) & (_MATCHES.c.state == state))
        where &= some.exists()
    rows = tx.all(sa.select(_EVENTS).where(where).order_by(_EVENTS.c.number.desc()).limit(limit))
    found = _matches(tx, [row.number for row in rows])
    return [_view(row, found.get(row.number, [])) for row in rows]


def replay(tx: Transaction, project: str, number: int, trigger: str | None, matcher: Matcher) -> EventView:
    """Give an event once more to a trigger, or to all that it matches now; each starts a run of its own."""
    row = _row(tx, project, number)
    event = intake.stored(row)
    if trigger is None:
        chosen = list(matcher.index(tx, project).matching(event))
    else:
        chosen = [compiled(registry.row(tx, project, trigger, "event"))]
    last = sa.select(sa.func.max(_MATCHES.c.replay)).where(_MATCHES.c.event == number)
    before = tx.conn.execute(last).scalar()
    intake.match(tx, project, [(one, number, event) for one in chosen], 0 if before is None else before + 1)
    return get(tx, project, number)


def _row(tx: Transaction, project: str, number: int) -> sa.Row[Any]:
    row = tx.one(sa.select(_EVENTS).where((_EVENTS.c.number == number) & (_EVENTS.c.project == project)))
    if row is None:
        raise NotFoundError(f"Project {project!r} has no event {number}. `trainlet events` lists those it has.")
    return row


def _matches(tx: Transaction, numbers: list[int]) -> dict[int, list[MatchView]]:
    same = (_TRIGGERS.c.project == _MATCHES.c.project) & (_TRIGGERS.c.name == _MATCHES.c.trigger)
    joined = _MATCHES.join(_TRIGGERS, same, isouter=True).join(_RUNS, _RUNS.c.id == _MATCHES.c.run_id, isouter=True)
    columns = (_MATCHES, _TRIGGERS.c.reason.label("holds"), _RUNS.c.state.label("run_state"))
    found: dict[int, list[MatchView]] = {}
    chosen = sa.select(*columns).select_from(joined).where(_MATCHES.c.event.in_(numbers)).order_by(_MATCHES.c.id)
    for row in tx.all(chosen):
        view = MatchView(
            trigger=row.trigger,
            state=row.state,
            reason=(row.holds or "about to start") if row.state == "held" else row.reason,
            run_id=row.run_id,
            run_state=row.run_state,
            matched_at=rfc3339(row.matched_ns),
            replay=row.replay,
        )
        found.setdefault(row.event, []).append(view)
    return found


def _view(row: sa.Row[Any], matches: list[MatchView], *, whole: bool = False) -> EventView:
    event = intake.stored(row)
    return EventView(
        number=row.number,
        id=row.id,
        source=row.source,
        type=row.type,
        subject=event.subject,
        received_at=rfc3339(row.received_ns),
        event=event.to_json() if whole else {},
        matches=matches,
    )
