"""Letters: one event on its way to one sink, until it is delivered or dead.

A sink that fails rests as a whole, longer each time, and its letters wait; one letter that a sink alone refuses comes
back later while the others go on. A letter is dead after many tries, and stays where people see it and can send it again.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.sinks import LetterState, LetterView
from trainlet_functions.state import outbox, schema
from trainlet_functions.state.database import Transaction, plain

MOST_TRIES = 15  # about four hours
DEAD_KEPT_S = 35 * 24 * 3600.0
MOST_WAITING = 10_000  # letters of one sink; more are dead at once, and can be sent again
_FIRST_NS, _LAST_NS = 1_000_000_000, 3600 * 1_000_000_000
_TABLE, _SINKS, _OUTBOX = schema.letters, schema.sinks, schema.outbox
_STATES: dict[LetterState, sa.ColumnElement[bool]] = {
    "waiting": _TABLE.c.due_ns.is_not(None),
    "delivered": _TABLE.c.delivered_ns.is_not(None),
    "dead": _TABLE.c.dead_ns.is_not(None),
}


def post(tx: Transaction, project: str, sink: str, events: list[int]) -> None:
    """Let events wait for a sink."""
    mine = _of(project, sink) & _STATES["waiting"]
    waiting = int(tx.conn.execute(sa.select(sa.func.count()).select_from(_TABLE).where(mine)).scalar_one())
    free = max(0, MOST_WAITING - waiting)
    base = {"project": project, "sink": sink, "created_ns": tx.now_ns, "tries": 0, "delivered_ns": None}
    full = f"{MOST_WAITING} events waited for this sink already"
    rows: list[dict[str, Any]] = []
    for position, event in enumerate(events):
        late = position >= free
        due_ns, dead_ns = (None, tx.now_ns) if late else (tx.now_ns, None)
        rows.append({**base, "event": event, "due_ns": due_ns, "dead_ns": dead_ns, "reason": full if late else ""})
    if rows:
        tx.conn.execute(_TABLE.insert(), rows)


def due_sinks(tx: Transaction) -> list[sa.Row[Any]]:
    """Return the sinks that something can be sent to now, those first that were served the longest ago."""
    ready = (_TABLE.c.project == _SINKS.c.project) & (_TABLE.c.sink == _SINKS.c.name) & (_TABLE.c.due_ns <= tx.now_ns)
    awake = (_SINKS.c.state == "active") & (_SINKS.c.rest_until_ns <= tx.now_ns)
    chosen = sa.select(_SINKS).where(awake & sa.select(_TABLE.c.number).where(ready).exists())
    return tx.all(chosen.order_by(sa.func.coalesce(_SINKS.c.delivered_ns, 0)))


def seconds_to_next(tx: Transaction, at_most: float) -> float:
    """Return how long nothing can be sent."""
    same = (_TABLE.c.project == _SINKS.c.project) & (_TABLE.c.sink == _SINKS.c.name)
    first = sa.select(sa.func.min(_TABLE.c.due_ns)).where(same & _STATES["waiting"]).scalar_subquery()
    rows = tx.all(sa.select(_SINKS.c.rest_until_ns, first.label("first")).where(_SINKS.c.state == "active"))
    times = [max(row.rest_until_ns, row.first) for row in rows if row.first is not None]
    return float(min([at_most, *(max(0.0, (at - tx.now_ns) / 1e9) for at in times)]))


def due(tx: Transaction, project: str, sink: str, limit: int) -> list[sa.Row[Any]]:
    """Return the letters that can be sent to a sink now with their events, the oldest first."""
    ready = _of(project, sink) & (_TABLE.c.due_ns <= tx.now_ns)
    return tx.all(_with_event(ready).order_by(_TABLE.c.number).limit(limit))


def delivered(tx: Transaction, letter: sa.Row[Any]) -> None:
    """Note that a sink took a letter."""
    values = {"due_ns": None, "delivered_ns": tx.now_ns, "tries": letter.tries + 1, "reason": ""}
    tx.run(_TABLE.update().where(_TABLE.c.number == letter.number).values(values))
    fresh = {"failures": 0, "rest_until_ns": 0, "delivered_ns": tx.now_ns, "reason": ""}
    tx.run(_SINKS.update().where(_sink(letter) & (_SINKS.c.state == "active")).values(fresh))


def failed(tx: Transaction, letter: sa.Row[Any], reason: str, *, alone: bool, wait_s: float = 0.0) -> None:
    """Note that a letter was not taken: it comes back later, or is dead after many tries.

    `alone`: only this letter is refused. Otherwise the sink rests, for `wait_s` at least.
    """
    reason, tries = plain(reason, 500), letter.tries + 1
    dead = tries >= MOST_TRIES
    due_ns = None if dead else tx.now_ns + _pause_ns(tries)
    values = {"due_ns": due_ns, "dead_ns": tx.now_ns if dead else None, "tries": tries, "reason": reason}
    tx.run(_TABLE.update().where(_TABLE.c.number == letter.number).values(values))
    if alone:
        return
    found = tx.one(sa.select(_SINKS.c.failures).where(_sink(letter)))
    failures = (0 if found is None else found.failures) + 1
    rest_ns = max(_pause_ns(failures), round(wait_s * 1e9))
    values = {"failures": failures, "rest_until_ns": tx.now_ns + rest_ns, "reason": reason}
    tx.run(_SINKS.update().where(_sink(letter)).values(values))


def gone(tx: Transaction, letter: sa.Row[Any], reason: str) -> None:
    """Pause a sink that says that it wants no more; what waits is kept."""
    tx.run(_SINKS.update().where(_sink(letter)).values(state="paused", reason=plain(reason, 500)))


def list_(
    tx: Transaction, project: str, sink: str, state: LetterState, before: int | None, limit: int
) -> list[LetterView]:
    """Return letters in a state, the newest first."""
    where = _of(project, sink) & _STATES[state]
    if before is not None:
        where &= _TABLE.c.number < before
    rows = tx.all(_with_event(where).order_by(_TABLE.c.number.desc()).limit(limit))
    return [
        LetterView(
            number=row.number,
            event=row.event_id,
            type=row.type,
            subject=row.task,
            state=state,
            tries=row.tries,
            reason=row.reason,
            created_at=rfc3339(row.created_ns),
            next_at=None if row.due_ns is None else rfc3339(row.due_ns),
        )
        for row in rows
    ]


def replay(tx: Transaction, project: str, sink: str, numbers: list[int] | None) -> int:
    """Send dead letters once more, these or all; returns how many."""
    where = _of(project, sink) & _STATES["dead"]
    if numbers is not None:
        where &= _TABLE.c.number.in_(numbers)
    return tx.run(_TABLE.update().where(where).values(due_ns=tx.now_ns, dead_ns=None, tries=0, reason=""))


def forget(tx: Transaction, limit: int = 500) -> int:
    """Forget letters that were delivered long ago, and dead ones much later; returns how many."""
    count = 0
    for column, kept_s in ((_TABLE.c.delivered_ns, outbox.KEPT_S), (_TABLE.c.dead_ns, DEAD_KEPT_S)):
        oldest = sa.select(_TABLE.c.number, column.label("at_ns")).where(column.is_not(None))
        rows = tx.all(oldest.order_by(_TABLE.c.number).limit(limit))
        numbers = [row.number for row in rows if row.at_ns < tx.now_ns - round(kept_s * 1e9)]
        if numbers:
            tx.run(_TABLE.delete().where(_TABLE.c.number.in_(numbers)))
        count += len(numbers)
    return count


def _with_event(where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    event = (_OUTBOX.c.event_id, _OUTBOX.c.type, _OUTBOX.c.task, _OUTBOX.c.attributes, _OUTBOX.c.data)
    happened = _OUTBOX.c.created_ns.label("happened_ns")
    joined = _TABLE.join(_OUTBOX, _OUTBOX.c.id == _TABLE.c.event)
    return sa.select(_TABLE, *event, happened).select_from(joined).where(where)


def _pause_ns(tries: int) -> int:
    return min(_LAST_NS, _FIRST_NS << min(tries - 1, 12))


def _of(project: str, sink: str) -> sa.ColumnElement[bool]:
    return (_TABLE.c.project == project) & (_TABLE.c.sink == sink)


def _sink(letter: sa.Row[Any]) -> sa.ColumnElement[bool]:
    return sa.and_(_SINKS.c.project == letter.project, _SINKS.c.name == letter.sink)
