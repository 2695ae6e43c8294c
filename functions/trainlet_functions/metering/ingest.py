"""Taking in lease events: each counts once, in any order, in the transaction that applies it.

The fold per lease: the greatest heartbeat, the smallest close, the longest list of phase marks; any one event creates
the lease. Per device: a later lease caps an earlier one at its own start, so no second of a device is billed twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from trainlet.core.models import canonical_json, sha256_hex
from trainlet.core.wire import LeaseEvent
from trainlet_functions.metering.tables import lease_events, leases, quarantine
from trainlet_functions.state.database import Transaction, dumps, loads


def ingest(tx: Transaction, project: str, events: Iterable[LeaseEvent]) -> int:
    """Apply events and return how many were new.

    A repeated event changes nothing. The same id with another payload is refused and kept in quarantine: a heartbeat
    must not fail because of it.
    """
    fresh = _fresh(tx, project, list(events))
    by_lease: dict[str, list[LeaseEvent]] = {}
    for event in fresh:
        by_lease.setdefault(event.lease, []).append(event)
    for lease, group in by_lease.items():
        _apply(tx, project, lease, group)
    return len(fresh)


def _fresh(tx: Transaction, project: str, events: list[LeaseEvent]) -> list[LeaseEvent]:
    if not events:
        return []
    known: dict[str, str] = {}
    ids = sorted({event.id for event in events})
    for start in range(0, len(ids), 500):
        chosen = (lease_events.c.project == project) & lease_events.c.id.in_(ids[start : start + 500])
        known |= {row.id: row.payload_hash for row in tx.all(sa.select(lease_events).where(chosen))}
    fresh: list[LeaseEvent] = []
    rows: list[dict[str, Any]] = []
    for event in events:
        body = canonical_json(event.model_dump(mode="json"))
        digest = sha256_hex(body)
        before = known.get(event.id)
        if before is None:
            known[event.id] = digest
            fresh.append(event)
            rows.append(
                {
                    "project": project,
                    "id": event.id,
                    "lease": event.lease,
                    "payload_hash": digest,
                    "body": body.decode(),
                    "received_ns": tx.now_ns,
                }
            )
        elif before != digest:
            refused = {"project": project, "event_id": event.id, "reason": "same id, other payload"}
            tx.run(quarantine.insert().values(**refused, body=body.decode(), received_ns=tx.now_ns))
    if rows:
        tx.conn.execute(lease_events.insert(), rows)
    return fresh


def _apply(tx: Transaction, project: str, lease: str, events: list[LeaseEvent]) -> None:
    where = (leases.c.project == project) & (leases.c.lease == lease)
    row = tx.one(sa.select(leases).where(where))
    heartbeat_ns = max(event.elapsed_ns for event in events)
    closes = [event.elapsed_ns for event in events if event.kind == "close"]
    phases = max((event.phases for event in events), key=len)
    if row is not None:
        if row.stale:
            return  # it was given up at its last accepted heartbeat; what comes later is kept in the log only
        closes += [row.close_ns] if row.close_ns is not None else []
        stored = loads(row.phases)
        values = {
            "heartbeat_ns": max(row.heartbeat_ns, heartbeat_ns),
            "close_ns": min(closes) if closes else None,
            "phases": dumps(phases) if len(phases) > len(stored) else row.phases,
        }
        tx.run(leases.update().where(where).values(values))
        return
    first = events[0]
    others = (leases.c.project == project) & (leases.c.device == first.device.uuid)
    later = sa.select(sa.func.min(leases.c.anchor_ns)).where(others & (leases.c.anchor_ns > first.anchor_ns))
    next_anchor = tx.conn.execute(later).scalar()
    tx.run(
        leases.insert().values(
            project=project,
            lease=lease,
            run_id=first.run_id,
            task=first.task,
            epoch=first.epoch,
            function=first.function,
            device=first.device.uuid,
            sku=first.device.sku,
            virtual=first.device.virtual,
            share=first.share,
            anchor_ns=first.anchor_ns,
            heartbeat_ns=heartbeat_ns,
            close_ns=min(closes) if closes else None,
            cap_ns=None if next_anchor is None else next_anchor - first.anchor_ns,
            phases=dumps(phases),
            stale=False,
        )
    )
    cap = first.anchor_ns - leases.c.anchor_ns
    earlier = others & (leases.c.anchor_ns < first.anchor_ns) & (leases.c.cap_ns.is_(None) | (leases.c.cap_ns > cap))
    tx.run(leases.update().where(earlier).values(cap_ns=cap))


def close_stale(tx: Transaction, task: str, epoch: int) -> None:
    """End the leases of an attempt that was given up, at their last accepted heartbeat."""
    tx.run(leases.update().where((leases.c.task == task) & (leases.c.epoch == epoch)).values(stale=True))


def elapsed_ns(row: sa.Row[Any]) -> int:
    """Return how long a lease counts: until its close, else its last heartbeat, and never into the next lease."""
    held = row.heartbeat_ns if row.close_ns is None else row.close_ns
    return int(held if row.cap_ns is None else min(held, row.cap_ns))


def rebuild(tx: Transaction, project: str) -> int:
    """Fold the whole event log of a project anew; the leases come out as they were. Returns how many there are."""
    stale = {
        row.lease for row in tx.all(sa.select(leases.c.lease).where((leases.c.project == project) & leases.c.stale))
    }
    tx.run(leases.delete().where(leases.c.project == project))
    groups: dict[str, list[LeaseEvent]] = {}
    logged = sa.select(lease_events.c.body).where(lease_events.c.project == project)
    for (body,) in tx.all(logged.order_by(lease_events.c.received_ns, lease_events.c.id)):
        event = LeaseEvent.model_validate_json(body)
        groups.setdefault(event.lease, []).append(event)
    for lease, events in groups.items():
        _apply(tx, project, lease, events)
    if stale:
        tx.run(leases.update().where((leases.c.project == project) & leases.c.lease.in_(stale)).values(stale=True))
    return len(groups)
