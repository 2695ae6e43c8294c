"""Taking in lease events: each counts once, in any order, in the transaction that applies it.

Per lease the fold decides (`trainlet_functions.metering.fold`). Per device the newer lease does: it ends the older one
at its own start, so no second of a device is billed twice, whichever project had it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from trainlet.core.models import sha256_hex
from trainlet.core.wire import LeaseEvent
from trainlet_functions.metering import fold
from trainlet_functions.metering.tables import lease_closings, lease_events, leases, quarantine
from trainlet_functions.state.database import Transaction, dumps, loads

_CHUNK = 500
_THIS = (leases.c.project == sa.bindparam("of_project")) & (leases.c.lease == sa.bindparam("of_lease"))
_BEAT = leases.update().where(_THIS).values(heartbeat_ns=sa.bindparam("beat_ns"))
_UPDATE = (
    leases.update().where(_THIS).values({name: sa.bindparam(name) for name in ("heartbeat_ns", "close_ns", "phases")})
)


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
    bodies: dict[str, str] = {}
    fresh: list[LeaseEvent] = []
    given = [(event, event.model_dump_json(exclude_defaults=True)) for event in events]
    known = _known(tx, project, {event.id for event, _ in given})
    for event, body in given:
        before = bodies.get(event.id) or known.get(event.id)
        if before == body:
            continue
        reason = "the same id came with another payload" if before is not None else fold.fault(event)
        if reason is not None:
            _refuse(tx, project, event.id, reason, body)
            continue
        bodies[event.id] = body
        fresh.append(event)
    stored = _stored(tx, project, {event.lease for event in fresh})
    headers = {lease: fold.header_of(row) for lease, row in stored.items()}
    counted: list[LeaseEvent] = []
    for event in fresh:
        said = fold.header(event)
        before_header = headers.setdefault(event.lease, said)
        if before_header == said:
            counted.append(event)
        else:
            wrong = next(name for name, value in said.items() if before_header[name] != value)
            _refuse(tx, project, event.id, f"its {wrong} contradicts its lease", bodies[event.id])
    if counted:
        tx.conn.execute(
            lease_events.insert(),
            [
                {"project": project, "id": event.id, "body": bodies[event.id], "received_ns": tx.now_ns}
                for event in counted
            ],
        )
        _apply(tx, project, counted, stored)
    return len(counted)


def close_stale(tx: Transaction, task: str, epoch: int) -> None:
    """End the leases of an attempt that was given up, at their last accepted heartbeat.

    The decision is logged: what its worker says later changes nothing (T2), and a rebuild ends them at the same time.
    """
    table = lease_closings
    mine = (leases.c.task == task) & (leases.c.epoch == epoch)
    if tx.all(sa.select(table.c.lease).where((table.c.task == task) & (table.c.epoch == epoch)).limit(1)):
        return
    ends = {"": 0}
    for row in tx.all(sa.select(leases).where(mine)):
        held = _held(row)
        ends[row.lease] = held.elapsed_ns
        this = (leases.c.project == row.project) & (leases.c.lease == row.lease)
        tx.run(leases.update().where(this).values(close_ns=held.elapsed_ns))
    base = {"task": task, "epoch": epoch, "decided_ns": tx.now_ns}
    tx.conn.execute(table.insert(), [{**base, "lease": lease, "elapsed_ns": end} for lease, end in ends.items()])


def elapsed_ns(row: sa.Row[Any]) -> int:
    """Return how long a lease counts: until its close, else its last heartbeat, and never into the next lease."""
    held = _held(row).elapsed_ns
    return int(held if row.cap_ns is None else min(held, row.cap_ns))


def is_open(row: sa.Row[Any]) -> bool:
    """Say whether a lease may still grow."""
    return row.close_ns is None and row.cap_ns is None


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
    chosen = sa.select(lease_events.c.id, lease_events.c.body).where(lease_events.c.project == project)
    parts = _chunks(ids)
    return {row.id: row.body for part in parts for row in tx.all(chosen.where(lease_events.c.id.in_(part)))}


def _stored(tx: Transaction, project: str, ids: set[str]) -> dict[str, sa.Row[Any]]:
    chosen = sa.select(leases).where(leases.c.project == project)
    return {row.lease: row for part in _chunks(ids) for row in tx.all(chosen.where(leases.c.lease.in_(part)))}


def _chunks(ids: set[str]) -> list[list[str]]:
    ordered = sorted(ids)
    return [ordered[start : start + _CHUNK] for start in range(0, len(ordered), _CHUNK)]


def _held(row: sa.Row[Any]) -> fold.Held:
    return fold.Held(row.heartbeat_ns, row.close_ns, tuple((name, begin) for name, begin in loads(row.phases)))


def _refuse(tx: Transaction, project: str, event_id: str, reason: str, body: str) -> None:
    digest = sha256_hex(f"{reason}\n{body}".encode())
    seen = sa.select(quarantine.c.digest).where((quarantine.c.project == project) & (quarantine.c.digest == digest))
    if tx.one(seen) is None:
        values = {"event_id": event_id.replace("\0", "")[:512], "reason": reason, "body": body}
        tx.run(quarantine.insert().values(project=project, digest=digest, received_ns=tx.now_ns, **values))


def _apply(tx: Transaction, project: str, events: list[LeaseEvent], stored: dict[str, sa.Row[Any]]) -> None:
    """Fold events, already in the log, into their leases."""
    held: dict[str, fold.Held] = {}
    first: dict[str, LeaseEvent] = {}
    for event in events:
        said = fold.said_by(event)
        known = held.get(event.lease)
        held[event.lease] = said if known is None else known.joined(said)
        first.setdefault(event.lease, event)
    beats: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for lease, row in stored.items():
        if lease not in held:
            continue
        before = _held(row)
        after = before.joined(held[lease])
        if (after.close_ns, after.phases) == (before.close_ns, before.phases):
            beats.append({"of_project": project, "of_lease": lease, "beat_ns": after.heartbeat_ns})
        else:
            columns = {"heartbeat_ns": after.heartbeat_ns, "close_ns": after.close_ns, "phases": dumps(after.phases)}
            changed.append({"of_project": project, "of_lease": lease, **columns})
    if beats:
        tx.conn.execute(_BEAT, beats)
    if changed:
        tx.conn.execute(_UPDATE, changed)
    new = [event for lease, event in first.items() if lease not in stored]
    if new:
        _create(tx, project, new, held)


def _create(tx: Transaction, project: str, events: list[LeaseEvent], held: dict[str, fold.Held]) -> None:
    closings = _closings(tx, {event.task for event in events})
    rows: list[dict[str, Any]] = []
    for event in events:
        said = held[event.lease]
        attempt = closings.get((event.task, event.epoch))
        if attempt is not None:
            said = said.closed(attempt.get(event.lease, 0))
        columns = {**asdict(said), "phases": dumps(said.phases)}
        rows.append({"project": project, **fold.header(event), **columns, "cap_ns": None})
    tx.conn.execute(leases.insert(), rows)
    for event in events:
        _fence(tx, project, event)


def _closings(tx: Transaction, tasks: set[str]) -> dict[tuple[str, int], dict[str, int]]:
    found: dict[tuple[str, int], dict[str, int]] = {}
    for part in _chunks(tasks):
        for row in tx.all(sa.select(lease_closings).where(lease_closings.c.task.in_(part))):
            found.setdefault((row.task, row.epoch), {})[row.lease] = row.elapsed_ns
    return found


def _fence(tx: Transaction, project: str, event: LeaseEvent) -> None:
    """Cap a new lease at the start of the next one on its device, and the one before it at its own start."""
    on_device = leases.c.device == event.device.uuid
    anchor, lease = leases.c.anchor_ns, leases.c.lease
    same = anchor == event.anchor_ns
    later = on_device & ((anchor > event.anchor_ns) | (same & (lease > event.lease)))
    earlier = on_device & ((anchor < event.anchor_ns) | (same & (lease < event.lease)))
    columns = sa.select(leases.c.project, lease, anchor)
    after = tx.one(columns.where(later).order_by(anchor, lease).limit(1))
    if after is not None:
        this = (leases.c.project == project) & (lease == event.lease)
        tx.run(leases.update().where(this).values(cap_ns=after.anchor_ns - event.anchor_ns))
    before = tx.one(columns.where(earlier).order_by(anchor.desc(), lease.desc()).limit(1))
    if before is not None:
        this = (leases.c.project == before.project) & (lease == before.lease)
        tx.run(leases.update().where(this).values(cap_ns=event.anchor_ns - before.anchor_ns))
