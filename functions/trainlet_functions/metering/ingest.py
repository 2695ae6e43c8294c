"""Taking in lease events: each counts once, in any order, in the transaction that applies it.

Per lease the fold decides (`trainlet_functions.metering.fold`). Per device the newer lease does: it ends the older one
at its own start, so no second of a device is billed twice, whichever project had it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from trainlet.core.models import sha256_hex
from trainlet.core.wire import LeaseEvent
from trainlet_functions.batches import batches
from trainlet_functions.metering import fold
from trainlet_functions.metering.segments import Segment, segments_of
from trainlet_functions.metering.tables import lease_closings, lease_events, leases, quarantine
from trainlet_functions.state.database import Many, Transaction

_CHUNK = 500
_to_json = TypeAdapter(LeaseEvent).serializer.to_json  # `model_dump_json` without passing a dozen options on
_THIS = (leases.c.project == sa.bindparam("of_project")) & (leases.c.lease == sa.bindparam("of_lease"))
_BEAT = Many(
    leases.update().where(_THIS).values(heartbeat_ns=sa.bindparam("beat_ns"), touched_ns=sa.bindparam("now_ns")),
    ("of_project", "of_lease", "beat_ns", "now_ns"),
)
_CHANGED = ("heartbeat_ns", "close_ns", "phases", "saved_ns", "touched_ns")
_UPDATE = Many(
    leases.update().where(_THIS).values({name: sa.bindparam(name) for name in _CHANGED}),
    ("of_project", "of_lease", *_CHANGED),
)
_BODIES = sa.select(lease_events.c.id, lease_events.c.body).where(lease_events.c.project == sa.bindparam("of_project"))
_LEASES = sa.select(*[leases.c[name] for name in (*fold.HEADER, *_CHANGED[:-1])]).where(
    leases.c.project == sa.bindparam("of_project")
)
_WIDTH = len(fold.HEADER)
_Stored = tuple[tuple[Any, ...], fold.Held]
"""A lease as it is stored: its header, and how long it was held."""
_LOG = Many(lease_events.insert(), ("project", "id", "body", "received_ns"))
_CREATE = Many(leases.insert(), ("project", *fold.HEADER, *_CHANGED, "lost_ns", "until_ns"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that was not counted, and why."""

    event_id: str
    reason: str
    received_ns: int


def ingest(tx: Transaction, project: str, events: Iterable[LeaseEvent]) -> int:
    """Apply events and return how many were new.

    A repeated event changes nothing. The same id with another payload, and an event that contradicts its own lease, are
    kept in quarantine and counted nowhere: a heartbeat must not fail because of them. `refusals` lists them.
    """
    given = [(event.id, _to_json(event, exclude_defaults=True).decode(), event) for event in events]
    bodies = _known(tx, project, {event_id for event_id, _, _ in given})
    fresh: list[tuple[str, str, LeaseEvent]] = []
    for one in given:
        event_id, body, event = one
        before = bodies.get(event_id)
        if before == body:
            continue
        reason = "the same id came with another payload" if before is not None else fold.fault(event)
        if reason is not None:
            _refuse(tx, project, event_id, reason, body)
            continue
        bodies[event_id] = body
        fresh.append(one)
    if not fresh:
        return 0
    stored = _stored(tx, project, {event.lease for _, _, event in fresh})
    headers = {lease: header for lease, (header, _) in stored.items()}
    counted: list[LeaseEvent] = []
    logged: list[tuple[str, str, str, int]] = []
    for event_id, body, event in fresh:
        said = fold.header(event)
        header = headers.setdefault(event.lease, said)
        reason = fold.misdated(event, tx.now_ns) if said == header else fold.contradiction(said, header)
        if reason is None:
            counted.append(event)
            logged.append((project, event_id, body, tx.now_ns))
        else:
            _refuse(tx, project, event_id, reason, body)
    tx.many(_LOG, logged)
    _apply(tx, project, counted, stored)
    return len(counted)


def close_stale(tx: Transaction, task: str, epoch: int, *, fault: bool = True) -> None:
    """End the leases of an attempt that was given up, at their last accepted heartbeat.

    The decision is logged: what its worker says later changes nothing (T2), and a rebuild ends them at the same time.
    With `fault`, the platform lost the worker: what came after the last checkpoint is work that has to be done again,
    and becomes the phase `lost`, which has a price of its own (none, unless the price list says otherwise).
    """
    table = lease_closings
    mine = (leases.c.task == task) & (leases.c.epoch == epoch)
    if tx.all(sa.select(table.c.lease).where((table.c.task == task) & (table.c.epoch == epoch)).limit(1)):
        return
    ends: dict[str, tuple[int, int | None]] = {"": (0, None)}
    for row in tx.all(sa.select(leases).where(mine)):
        held = _held(row)
        lost_ns = row.saved_ns if fault and row.close_ns is None else None
        ends[row.lease] = (held.elapsed_ns, lost_ns)
        this = (leases.c.project == row.project) & (leases.c.lease == row.lease)
        tx.run(leases.update().where(this).values(close_ns=held.elapsed_ns, lost_ns=lost_ns, touched_ns=tx.now_ns))
    base = {"task": task, "epoch": epoch, "decided_ns": tx.now_ns}
    tx.conn.execute(
        table.insert(),
        [{**base, "lease": lease, "elapsed_ns": end, "lost_ns": lost_ns} for lease, (end, lost_ns) in ends.items()],
    )


def close_at(tx: Transaction, task: str, epoch: int, most_ns: int) -> bool:
    """End the leases of an attempt after `most_ns` at the latest, for good; returns whether any was longer than that.

    The decision is logged like that of `close_stale`, which finds nothing left to decide afterwards.
    """
    rows = tx.all(sa.select(leases).where((leases.c.task == task) & (leases.c.epoch == epoch)))
    if not any(elapsed_ns(row) > most_ns for row in rows):
        return False
    table = lease_closings
    if tx.all(sa.select(table.c.lease).where((table.c.task == task) & (table.c.epoch == epoch)).limit(1)):
        return False
    base = {"task": task, "epoch": epoch, "lost_ns": None, "decided_ns": tx.now_ns}
    ends = {"": 0} | {row.lease: min(most_ns, _held(row).elapsed_ns) for row in rows}
    for row in rows:
        mine = (leases.c.project == row.project) & (leases.c.lease == row.lease)
        tx.run(leases.update().where(mine).values(close_ns=ends[row.lease], touched_ns=tx.now_ns))
    tx.conn.execute(table.insert(), [{**base, "lease": lease, "elapsed_ns": end} for lease, end in ends.items()])
    return True


def elapsed_ns(row: sa.Row[Any]) -> int:
    """Return how long a lease counts: until its close, else its last heartbeat, and never into the next lease."""
    held = row.heartbeat_ns if row.close_ns is None else row.close_ns
    return int(held if row.until_ns is None else min(held, row.until_ns - row.anchor_ns))


def is_open(row: sa.Row[Any]) -> bool:
    """Say whether a lease may still grow."""
    return row.close_ns is None and row.until_ns is None


def segments(row: sa.Row[Any]) -> list[Segment]:
    """Return the billable whole seconds of a stored lease, by phase."""
    marks = fold.phases_of(row.phases)
    if row.lost_ns is not None:
        marks = (*[(name, begin) for name, begin in marks if begin < row.lost_ns], ("lost", row.lost_ns))
    return segments_of(row.anchor_ns, elapsed_ns(row), marks)


def refusals(tx: Transaction, project: str) -> list[Refusal]:
    """Return the quarantined events of a project, the oldest first."""
    chosen = sa.select(quarantine).where(quarantine.c.project == project)
    rows = tx.all(chosen.order_by(quarantine.c.received_ns, quarantine.c.digest))
    return [Refusal(row.event_id, row.reason, row.received_ns) for row in rows]


def rebuild(tx: Transaction, project: str | None = None) -> int:
    """Fold the logs anew, of a project or of all; the leases come out as they were. Returns how many there are."""
    mine = sa.true() if project is None else leases.c.project == project
    tx.run(leases.delete().where(mine))
    logged = sa.select(lease_events.c.project, lease_events.c.body)
    if project is not None:
        logged = logged.where(lease_events.c.project == project)
    for owner, events in _by_project(
        (row.project, row.body) for row in tx.conn.execute(logged.order_by(lease_events.c.id))
    ):
        for start in range(0, len(events), 10 * _CHUNK):
            part = events[start : start + 10 * _CHUNK]
            _apply(tx, owner, part, _stored(tx, owner, {event.lease for event in part}))
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(leases).where(mine)).scalar_one())


def _by_project(rows: Iterable[tuple[str, str]]) -> list[tuple[str, list[LeaseEvent]]]:
    groups: dict[str, list[LeaseEvent]] = {}
    for owner, body in rows:
        groups.setdefault(owner, []).append(LeaseEvent.model_validate_json(body))
    return list(groups.items())


def _known(tx: Transaction, project: str, ids: set[str]) -> dict[str, str]:
    return dict(tx.named(_BODIES, lease_events.c.id, ids, of_project=project))


def _stored(tx: Transaction, project: str, names: set[str]) -> dict[str, _Stored]:
    return {
        row[0]: (row[:_WIDTH], fold.held(*row[_WIDTH:]))
        for row in tx.named(_LEASES, leases.c.lease, names, of_project=project)
    }


def _held(row: sa.Row[Any]) -> fold.Held:
    return fold.held(row.heartbeat_ns, row.close_ns, row.phases, row.saved_ns)


def _refuse(tx: Transaction, project: str, event_id: str, reason: str, body: str) -> None:
    digest = sha256_hex(f"{reason}\n{body}".encode())
    seen = sa.select(quarantine.c.digest).where((quarantine.c.project == project) & (quarantine.c.digest == digest))
    if tx.one(seen) is None:
        values = {"event_id": event_id.replace("\0", "")[:512], "reason": reason, "body": body}
        tx.run(quarantine.insert().values(project=project, digest=digest, received_ns=tx.now_ns, **values))


def _apply(tx: Transaction, project: str, events: list[LeaseEvent], stored: dict[str, _Stored]) -> None:
    """Fold events, already in the log, into their leases."""
    said: dict[str, list[LeaseEvent]] = {}
    for event in events:
        said.setdefault(event.lease, []).append(event)
    beats: list[tuple[Any, ...]] = []
    changed: list[tuple[Any, ...]] = []
    new: list[tuple[LeaseEvent, fold.Held]] = []
    for lease, together in said.items():
        held, known = fold.folded(together), stored.get(lease)
        if known is None:
            new.append((together[0], held))
            continue
        before = known[1]
        after = before.joined(held)
        if (after.close_ns, after.phases, after.saved_ns) != (before.close_ns, before.phases, before.saved_ns):
            changed.append((project, lease, *fold.columns(after), tx.now_ns))
        elif after.heartbeat_ns > before.heartbeat_ns:
            beats.append((project, lease, after.heartbeat_ns, tx.now_ns))
    tx.many(_BEAT, beats)
    tx.many(_UPDATE, changed)
    if new:
        _create(tx, project, new)


def _create(tx: Transaction, project: str, new: list[tuple[LeaseEvent, fold.Held]]) -> None:
    closings = _closings(tx, {event.task for event, _ in new})
    rows: list[tuple[Any, ...]] = []
    for event, said in new:
        lost_ns, attempt = None, closings.get((event.task, event.epoch))
        if attempt is not None:
            end_ns, lost_ns = attempt.get(event.lease, (0, None))
            said = said.closed(end_ns)
        rows.append((project, *fold.header(event), *fold.columns(said), tx.now_ns, lost_ns, None))
    tx.many(_CREATE, rows)
    _fence(tx, project, [event for event, _ in new])


def _closings(tx: Transaction, tasks: set[str]) -> dict[tuple[str, int], dict[str, tuple[int, int | None]]]:
    found: dict[tuple[str, int], dict[str, tuple[int, int | None]]] = {}
    for part in batches(sorted(tasks), _CHUNK):
        for row in tx.all(sa.select(lease_closings).where(lease_closings.c.task.in_(part))):
            found.setdefault((row.task, row.epoch), {})[row.lease] = (row.elapsed_ns, row.lost_ns)
    return found


_NOW, _ANCHOR, _UNTIL = sa.bindparam("now_ns", type_=sa.BigInteger), leases.c.anchor_ns, leases.c.until_ns
_AT, _NAME = sa.bindparam("at_ns", type_=sa.BigInteger), sa.bindparam("name", type_=sa.Text)


def _overlap(lease: sa.FromClause) -> sa.ColumnElement[bool]:
    return (
        (lease.c.device == sa.bindparam("on_device", type_=sa.Text))
        & (lease.c.part < sa.bindparam("past", type_=sa.Integer))
        & (lease.c.part + lease.c.share > sa.bindparam("first", type_=sa.Integer))
    )


_OTHERS = leases.alias()
_NEXT_NS = (
    sa.select(sa.func.min(_OTHERS.c.anchor_ns))
    .where(_overlap(_OTHERS) & (_OTHERS.c.anchor_ns >= _AT))
    .where((_OTHERS.c.anchor_ns > _AT) | (_OTHERS.c.lease > _NAME))
)
_PLACE = ("of_project", "name", "on_device", "first", "past", "at_ns", "now_ns")
_CAP_THIS = Many(
    leases.update()
    .where((leases.c.project == sa.bindparam("of_project")) & (leases.c.lease == _NAME))
    .values(until_ns=_NEXT_NS.scalar_subquery()),
    _PLACE,
)
_CAP_OTHERS = Many(
    leases.update()
    .where(_overlap(leases) & (_UNTIL.is_(None) | (_UNTIL > _AT)))
    .where((_ANCHOR < _AT) | ((_ANCHOR == _AT) & (leases.c.lease < _NAME)))
    .values(until_ns=_AT, touched_ns=_NOW),
    _PLACE,
)


def _fence(tx: Transaction, project: str, events: Iterable[LeaseEvent]) -> None:
    """Cap new leases where the next one on their part of the device begins, and those before them where they begin.

    What caps a lease is the smallest such begin, so the order in which they are looked at does not matter.
    """
    places = [
        (project, event.lease, event.device.uuid, event.part, event.part + event.share, event.anchor_ns, tx.now_ns)
        for event in events
    ]
    tx.many(_CAP_THIS, places)
    tx.many(_CAP_OTHERS, places)
