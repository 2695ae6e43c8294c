"""The fan-out: what happened goes on to the sinks that want it and to the triggers that match it, all in one transaction.

Dying before the commit changes nothing, after it everything is where it belongs; so any replica may do it. News that
nobody wants end here.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import codecs, envelopes, events, lifecycle, traces
from trainlet.core.clocks import rfc3339
from trainlet.core.events import Event
from trainlet.core.triggers import CHAIN
from trainlet_functions.batches import batches
from trainlet_functions.sinks import letters, registry
from trainlet_functions.state import outbox, schema
from trainlet_functions.state.database import Database, Transaction, dumps, loads
from trainlet_functions.state.problems import TooManyWaiting
from trainlet_functions.triggers import firing, intake, tables
from trainlet_functions.triggers.matching import Matcher

_MOST_OUTPUT = 64 * 1024  # characters of results that travel with an event
LATER_S = 5.0  # when events are handed on that a full queue did not take
_OUTBOX, _SINKS, _RUNS, _FIRINGS = schema.outbox, schema.sinks, schema.runs, tables.firings


def work(database: Database, matcher: Matcher) -> int:
    """Hand on what happened; returns how many events that were."""
    with database.read() as tx:
        if not outbox.news(tx, limit=1):
            return 0
    with database.write() as tx:
        return hand_on(tx, matcher)


def forget(database: Database) -> None:
    """Forget what was handed on and delivered long ago."""
    for oldest in (letters.forget, outbox.forget):
        while True:
            with database.write() as tx:
                if oldest(tx) == 0:
                    break


def hand_on(tx: Transaction, matcher: Matcher) -> int:
    """Hand on the oldest news, of all projects; returns how many."""
    rows = outbox.news(tx)
    shared = [row for row in rows if row.project.endswith("*")]
    _share(tx, shared)
    rows = [row for row in rows if not row.project.endswith("*")] or (outbox.news(tx) if shared else [])
    for project in sorted({row.project for row in rows}):
        mine = [row for row in rows if row.project == project]
        later = _hand_on(tx, matcher, project, mine)
        done = [row.id for row in mine if row.id not in later]
        _mark(tx, done, due_ns=None, delivered_ns=tx.now_ns)
        _mark(tx, sorted(later), due_ns=tx.now_ns + round(LATER_S * 1e9))
    return len(rows)


def _share(tx: Transaction, rows: list[sa.Row[Any]]) -> None:
    """Make news of a budget that covers many projects news of each of them that could hear of it."""
    if not rows:
        return
    known: set[str] = set()
    for table, awake in ((_SINKS, _SINKS.c.removed_ns.is_(None)), (tables.triggers, sa.true())):
        known |= {row.project for row in tx.all(sa.select(table.c.project).where(awake).distinct())}
    for row in rows:
        about = {"type": row.type, "task": row.task, "epoch": row.epoch, "data": row.data, "created_ns": row.created_ns}
        for project in sorted(one for one in known if one.startswith(row.project[:-1])):
            mine = {"event_id": f"{row.event_id}@{project}", "project": project, "due_ns": tx.now_ns, "tries": 0}
            tx.insert(_OUTBOX, **about, **mine)
    _mark(tx, [row.id for row in rows], due_ns=None, delivered_ns=tx.now_ns)


def _mark(tx: Transaction, ids: list[int], **values: Any) -> None:
    for part in batches(ids, 500):
        tx.run(_OUTBOX.update().where(_OUTBOX.c.id.in_(part)).values(values))


def event_of(row: sa.Row[Any], project: str, happened_ns: int) -> Event:
    """Return the CloudEvent of a row of the outbox."""
    base = events.make(
        row.type,
        envelopes.source(project),
        row.event_id,
        loads(row.data),
        subject=row.task,
        time=rfc3339(happened_ns),
        datacontenttype="application/json",
    )
    return Event({**base.attributes, **(loads(row.attributes) or {})}, base.data)


def _hand_on(tx: Transaction, matcher: Matcher, project: str, rows: list[sa.Row[Any]]) -> set[int]:
    """Hand on the news of one project; returns those that a trigger whose queue is full did not take."""
    awake = (_SINKS.c.project == project) & _SINKS.c.removed_ns.is_(None)
    sinks = [(sink.name, loads(sink.types)) for sink in tx.all(sa.select(_SINKS).where(awake))]
    index = matcher.index(tx, project)
    if not sinks and not index.exact:
        return set()
    known = _runs(tx, rows)
    found = [(row, _complete(tx, row, known.get(str(loads(row.data).get("run"))), project)) for row in rows]
    given = {row.id: event for row, event in found if next(index.matching(event), None) is not None}
    later = set() if _taken(tx, matcher, project, list(given.values())) else set(given)
    wanted: dict[str, list[int]] = {}
    for row, event in found:
        receivers = [name for name, types in sinks if registry.wants(types, row.type)]
        if row.id in later or not (receivers or row.id in given):
            continue
        values = {"attributes": dumps(_extensions(event)), "data": dumps(event.data)}
        tx.run(_OUTBOX.update().where(_OUTBOX.c.id == row.id).values(values))
        for name in receivers:
            wanted.setdefault(name, []).append(row.id)
    for name, ids in wanted.items():
        letters.post(tx, project, name, ids)
    return later


def _taken(tx: Transaction, matcher: Matcher, project: str, given: list[Event]) -> bool:
    """Give events to the triggers that match them; returns False when a queue is full."""
    try:
        with tx.conn.begin_nested():
            if given:
                intake.take(tx, project, given, matcher, identified=True)
    except TooManyWaiting:
        return False
    return True


def _runs(tx: Transaction, rows: list[sa.Row[Any]]) -> dict[str, sa.Row[Any]]:
    """Return the runs that the news are about, with the triggers that led to them."""
    ids = sorted({str(loads(row.data).get("run")) for row in rows})
    columns = (*_RUNS.c, _FIRINGS.c.chain, _FIRINGS.c.trigger)
    joined = _RUNS.join(_FIRINGS, _FIRINGS.c.run_id == _RUNS.c.id, isouter=True)
    return {row.id: row for row in tx.all(sa.select(*columns).select_from(joined).where(_RUNS.c.id.in_(ids)))}


def _complete(tx: Transaction, row: sa.Row[Any], run: sa.Row[Any] | None, project: str) -> Event:
    """Return the event with what only whoever wants it needs: its causes, its trace, and what a run gave and cost."""
    event = event_of(row, project, row.created_ns)
    if run is None:
        return event
    more: dict[str, Any] = {traces.HEADER: str(traces.of_task(run.id, row.task, loads(run.labels)))}
    if run.chain:
        more[CHAIN] = run.chain
    data = dict(event.data)
    if row.type.startswith(lifecycle.RUN):
        data["trigger"] = run.trigger
        if data["state"] != "running":
            data["cost_nano"] = firing.cost_nano(tx, project, run.id, run.labels)
            data["currency"] = tx.prices.currency
            outputs = {name: value for name, value in loads(run.outputs).items() if codecs.TAG not in dumps(value)}
            data["outputs"] = outputs if len(dumps(outputs)) <= _MOST_OUTPUT else {}
        data = lifecycle.RunChanged.model_validate(data).model_dump(mode="json", exclude_none=True)
    return Event({**event.attributes, **more}, data)


def _extensions(event: Event) -> dict[str, Any]:
    return {name: event.attributes[name] for name in (traces.HEADER, CHAIN) if name in event.attributes}
