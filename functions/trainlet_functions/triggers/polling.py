"""Looking at places that cannot notify: what is new there becomes an event, nothing missed and nothing twice.

What was seen is kept a row each, written in the transaction that takes the events in: dying in the middle of a look
repeats a part of it, and the events of that part are known already. The place itself is read outside of transactions.
How far a long listing came is kept too, so that one that is cut short goes on there; what came before that place
meanwhile is seen by the look after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from trainlet.core import events
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import TrainletError
from trainlet.core.triggers import OBJECT_CREATED, Poll, Subscription
from trainlet_functions.batches import batches
from trainlet_functions.state.database import Database, Transaction, dumps, loads
from trainlet_functions.triggers import intake, places, tables
from trainlet_functions.triggers.matching import Matcher

_PART = 500
_NOTED_PARTS = 20  # how many parts without news are listed again at most
_RESUME = ""  # the key of the row that says where a listing goes on; no object has it
_TABLE, _SEEN = tables.triggers, tables.polled


def due(tx: Transaction, limit: int = 20) -> list[sa.Row[Any]]:
    """Return the triggers whose place is to be looked at now."""
    ready = (_TABLE.c.poll_ns <= tx.now_ns) & (_TABLE.c.state == "active")
    return tx.all(sa.select(_TABLE).where(ready).order_by(_TABLE.c.poll_ns).limit(limit))


def look(database: Database, matcher: Matcher, trigger: sa.Row[Any]) -> int:
    """Look at the place of one trigger once; returns how many events were new. A place that fails is told as a reason."""
    poll = Subscription.model_validate_json(trigger.spec).poll
    if poll is None:
        return 0
    fresh, problem = 0, ""
    try:
        place = places.open_place(poll.url)
        after = _resumed(database, trigger, poll) if place.resumes else ""
        for number, part in enumerate(batches(place.list(after), _PART), 1):
            fresh += _take_part(database, matcher, trigger, poll, place, part)
            if place.resumes and number % _NOTED_PARTS == 0:
                _note_place(database, trigger, dumps([poll.url, part[-1].key]))
                after = part[-1].key
        if after:
            _note_place(database, trigger, None)
    except TrainletError as error:
        problem = f"{intake.POLLING}{error}"
    _note(database, trigger, poll, problem)
    return fresh


def _resumed(database: Database, trigger: sa.Row[Any], poll: Poll) -> str:
    """Return the key after which a listing that was cut short goes on; empty when there is none."""
    with database.read() as tx:
        found = tx.one(sa.select(_SEEN.c.mark).where(_mine(trigger) & (_SEEN.c.key == _RESUME)))
    url, key = ("", "") if found is None else loads(found.mark)
    return str(key) if url == poll.url else ""


def _note_place(database: Database, trigger: sa.Row[Any], mark: str | None) -> None:
    """Note how far a listing came; None: it came to its end."""
    with database.write() as tx:
        tx.run(_SEEN.delete().where(_mine(trigger) & (_SEEN.c.key == _RESUME)))
        if mark is not None:
            tx.insert(_SEEN, project=trigger.project, trigger=trigger.name, key=_RESUME, mark=mark)


def _mine(trigger: sa.Row[Any]) -> sa.ColumnElement[bool]:
    return sa.and_(_SEEN.c.project == trigger.project, _SEEN.c.trigger == trigger.name)


def _take_part(
    database: Database,
    matcher: Matcher,
    trigger: sa.Row[Any],
    poll: Poll,
    place: places.Place,
    part: Sequence[places.Found],
) -> int:
    mine = _mine(trigger)
    with database.read() as tx:
        chosen = sa.select(_SEEN.c.key, _SEEN.c.mark).where(mine & _SEEN.c.key.in_([one.key for one in part]))
        seen = {row.key: row.mark for row in tx.all(chosen)}
        now_ns = tx.now_ns
    settled_ns = now_ns - round(place.settle_s * 1e9)
    changed = [one for one in part if seen.get(one.key) != one.mark and one.changed_ns <= settled_ns]
    if not changed:
        return 0
    since_ns = trigger.created_ns - round(place.skew_s * 1e9)
    rows, given = [], []
    for one in changed:
        old = one.key not in seen and one.changed_ns < since_ns  # it was there before the trigger was
        content = "" if old else place.content(one)
        if content is None:
            continue
        rows.append({"project": trigger.project, "trigger": trigger.name, "key": one.key, "mark": one.mark})
        if not old:
            given.append(_event(poll, place, one, content))
    with database.write() as tx:
        changed_keys = [row["key"] for row in rows if row["key"] in seen]
        if changed_keys:
            tx.run(_SEEN.delete().where(mine & _SEEN.c.key.in_(changed_keys)))
        if rows:
            tx.conn.execute(_SEEN.insert(), rows)
        return len(intake.take(tx, trigger.project, given, matcher).fresh) if given else 0


def _event(poll: Poll, place: places.Place, one: places.Found, content: str) -> events.Event:
    at = rfc3339(one.changed_ns)
    event_id = f"{one.key[:400]}@{content[:64]}"
    data = {**place.about(one), "content": content}
    return events.make(OBJECT_CREATED, poll.url, event_id, data, subject=one.key[:1000], time=at)


def _note(database: Database, trigger: sa.Row[Any], poll: Poll, problem: str) -> None:
    this = (_TABLE.c.project == trigger.project) & (_TABLE.c.name == trigger.name)
    with database.write() as tx:
        row = tx.one(sa.select(_TABLE.c.reason, _TABLE.c.state).where(this))
        if row is None:
            return
        values: dict[str, Any] = {"poll_ns": tx.now_ns + round(poll.every_s * 1e9)}
        if row.state == "active" and (problem or row.reason.startswith(intake.POLLING)):
            values["reason"] = problem[:1000]
        tx.run(_TABLE.update().where(this).values(values))
