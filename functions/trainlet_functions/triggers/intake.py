"""The intake: events become rows, once each, and wait for the triggers that they match. All of it or nothing.

The sender gets its acknowledgement after the commit, so an acknowledged event is in the database together with what it
will start, and an event that comes again (same source and id) changes nothing (T4, T5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from trainlet.core.clocks import rfc3339
from trainlet.core.errors import ConflictError, UserError
from trainlet.core.events import MAX_DATA_BYTES, Event
from trainlet.core.models import sha256_hex
from trainlet.core.triggers import CHAIN, MAX_WAITING
from trainlet_functions.state.database import Transaction, dumps, loads
from trainlet_functions.state.problems import TooManyWaiting
from trainlet_functions.triggers import tables
from trainlet_functions.triggers.matching import Compiled, Matcher

COLLECTING = "collecting events"
POLLING = "polling: "  # how the reason begins when a place cannot be looked at; runs that start do not mend that
_CHUNK = 500
_INBOX, _EVENTS, _TRIGGERS, _MATCHES = tables.inbox, tables.events, tables.triggers, tables.matches


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the events of one request."""

    fresh: list[Event]
    numbers: list[int]
    matched: int
    due: tuple[str, ...] = ()
    """Triggers that have what they gather: a run of them may start now."""


def take(
    tx: Transaction, project: str, events: Sequence[Event], matcher: Matcher, *, identified: bool = False
) -> Taken:
    """Store what is new and match it.

    `identified`: the ids were made of what the events say, and whatever else a repetition says does not matter.
    Raises ConflictError for an id that came before with other data, UserError for too much data, TooManyWaiting when
    one trigger has too long a queue: then nothing is stored, and the sender sends it again.
    """
    fresh = _fresh(tx, project, events, identified=identified)
    if not fresh:
        return Taken([], [], 0)
    first = int(tx.conn.execute(sa.select(sa.func.max(_EVENTS.c.number))).scalar() or 0) + 1
    rows, ids = [], []
    for number, (event, data, digest) in enumerate(fresh, first):
        base = {"project": project, "id": event.id, "source": event.source}
        rows.append(
            {
                **base,
                "number": number,
                "type": event.type,
                "attributes": dumps(dict(event.attributes)),
                "data": data,
                "is_binary": event.binary,
                "received_ns": tx.now_ns,
            }
        )
        ids.append({**base, "payload_hash": digest, "event": number})
    tx.conn.execute(_EVENTS.insert(), rows)
    tx.conn.execute(_INBOX.insert(), ids)
    index = matcher.index(tx, project)
    found = [
        (one, first + offset, event) for offset, (event, _, _) in enumerate(fresh) for one in index.matching(event)
    ]
    due = match(tx, project, found)
    return Taken([event for event, _, _ in fresh], list(range(first, first + len(fresh))), len(found), due)


def match(
    tx: Transaction, project: str, found: Sequence[tuple[Compiled, int, Event]], replay: int = 0
) -> tuple[str, ...]:
    """Let events wait for triggers; returns those that are due now. One that the loop guard stops is kept as skipped."""
    if not found:
        return ()
    rows: list[dict[str, Any]] = []
    waiting: dict[str, int] = {}
    by_name = {one.name: one for one, _, _ in found}
    for one, number, event in found:
        reason = _loops(one, event)
        state = "held" if reason is None else "skipped"
        if reason is None:
            waiting[one.name] = waiting.get(one.name, 0) + 1
        base = {"project": project, "trigger": one.name, "event": number, "replay": replay, "run_id": None}
        rows.append({**base, "state": state, "reason": reason or "", "matched_ns": tx.now_ns})
    tx.conn.execute(_MATCHES.insert(), rows)
    return tuple(name for name, count in waiting.items() if _wait(tx, project, by_name[name], count))


def stored(row: sa.Row[Any]) -> Event:
    """Return a stored event."""
    return Event(loads(row.attributes), loads(row.data), row.is_binary)


def forget(tx: Transaction, limit: int = 500) -> int:
    """Forget the oldest events after the time that `Limits` says, except what still waits; returns how many."""
    held = sa.select(_MATCHES.c.id).where((_MATCHES.c.event == _EVENTS.c.number) & (_MATCHES.c.state == "held"))
    columns = (_EVENTS.c.number, _EVENTS.c.project, _EVENTS.c.id, _EVENTS.c.source, _EVENTS.c.received_ns)
    oldest = sa.select(*columns).where(~held.exists()).order_by(_EVENTS.c.number).limit(limit)
    rows = [row for row in tx.all(oldest) if row.received_ns < tx.now_ns - round(tx.limits.events_kept_s * 1e9)]
    for row in rows:
        this = (_INBOX.c.project == row.project) & (_INBOX.c.id == row.id) & (_INBOX.c.source == row.source)
        tx.run(_INBOX.delete().where(this))
        tx.run(_MATCHES.delete().where(_MATCHES.c.event == row.number))
        tx.run(_EVENTS.delete().where(_EVENTS.c.number == row.number))
    return len(rows)


def _fresh(tx: Transaction, project: str, events: Sequence[Event], *, identified: bool) -> list[tuple[Event, str, str]]:
    """Return the events that never came before, with their data as text and the hash of what must not change."""
    known: dict[tuple[str, str], str] = {}
    ids = sorted({event.id for event in events})
    columns = sa.select(_INBOX.c.id, _INBOX.c.source, _INBOX.c.payload_hash).where(_INBOX.c.project == project)
    for start in range(0, len(ids), _CHUNK):
        for row in tx.all(columns.where(_INBOX.c.id.in_(ids[start : start + _CHUNK]))):
            known[row.id, row.source] = row.payload_hash
    fresh: list[tuple[Event, str, str]] = []
    for event in events:
        data = dumps(event.data)
        if len(data) > MAX_DATA_BYTES:
            raise UserError(
                f"The event {event.id!r} has {len(data)} bytes of data; at most {MAX_DATA_BYTES} are taken. "
                "Put the data into the store and send its URI."
            )
        # Not the whole event: brokers change other attributes with every delivery.
        digest = sha256_hex(f"{event.type}\0{event.binary}\0{dumps(event.data, sort_keys=True)}".encode())[:32]
        before = known.setdefault((event.id, event.source), "")
        if before and before != digest and not identified:
            raise ConflictError(f"The event {event.id!r} of {event.source!r} came before with other data.")
        if not before:
            known[event.id, event.source] = digest
            fresh.append((event, data, digest))
    return fresh


def _loops(one: Compiled, event: Event) -> str | None:
    chain = str(event.attributes.get(CHAIN, "")).split(",")
    if chain.count(one.name) <= one.flow.max_repeats:
        return None
    return (
        f"loop guard: this event was caused by {' -> '.join(chain)}, and {one.name} must not start itself again. "
        "Allow it with max_repeats=, or narrow the filter."
    )


def _wait(tx: Transaction, project: str, one: Compiled, count: int) -> bool:
    """Count events that wait, and note when the trigger is looked at next; says whether that is now."""
    this = (_TRIGGERS.c.project == project) & (_TRIGGERS.c.name == one.name)
    columns = (_TRIGGERS.c.waiting, _TRIGGERS.c.due_ns, _TRIGGERS.c.reason)
    row = tx.conn.execute(sa.select(*columns).where(this)).one()
    if row.waiting + count > MAX_WAITING:
        raise TooManyWaiting(
            f"{row.waiting} events wait for {one.name} already; at most {MAX_WAITING} may. `trainlet triggers` says why."
        )
    full = row.waiting + count >= one.flow.max_batch
    pause_s = one.flow.debounce_s or one.flow.window_s
    due_ns = tx.now_ns if full or not pause_s else tx.now_ns + round(pause_s * 1e9)
    if row.due_ns is not None:
        due_ns = min(due_ns, row.due_ns)
    reason = row.reason or (f"{COLLECTING}, until {rfc3339(due_ns)}" if due_ns > tx.now_ns else "")
    tx.run(_TRIGGERS.update().where(this).values(waiting=row.waiting + count, due_ns=due_ns, reason=reason))
    return due_ns <= tx.now_ns
