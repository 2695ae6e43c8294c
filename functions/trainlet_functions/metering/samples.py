"""Samples of devices, kept by lease and hour: how much of what was allocated was used. No bill reads them.

A record that saw more of its hour replaces the one before it, so a repeated or late one changes nothing. Sums by project
and SKU are kept with them, so that metrics need not add up the past.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from trainlet.core.samples import HOUR_S, DeviceSample, DeviceUse
from trainlet_functions.batches import batches
from trainlet_functions.metering.tables import device_samples, device_use, leases
from trainlet_functions.state.database import Transaction

_CHUNK = 500
_HOUR_NS = HOUR_S * 10**9
_SKEW_HOURS = 24  # as for lease events
_SEEN = device_samples
_OF_PROJECT = sa.select(_SEEN.c.lease, _SEEN.c.hour, _SEEN.c.known_ms, _SEEN.c.used_ms).where(
    _SEEN.c.project == sa.bindparam("of_project")
)


def take(tx: Transaction, project: str, given: Iterable[DeviceSample]) -> int:
    """Keep samples; returns how many were new or saw more.

    Those of a lease that is unknown or virtual, or of an hour that its lease was not in, are dropped: they say nothing.
    """
    best: dict[tuple[str, int], DeviceSample] = {}
    for sample in given:
        known = best.get((sample.lease, sample.hour))
        if known is None or known.sampled_ms < sample.sampled_ms:
            best[sample.lease, sample.hour] = sample
    kept = 0
    for part in batches(list(best.values()), _CHUNK):
        kept += _take(tx, project, part)
    return kept


def of_leases(tx: Transaction, where: sa.ColumnElement[bool]) -> dict[tuple[str, str], sa.Row[Any]]:
    """Return the sums of the samples of leases that `where` chooses, by project and lease."""
    columns = [sa.func.sum(_SEEN.c[name]).label(name) for name in ("known_ms", "used_ms", "energy_mj")]
    columns += [sa.func.max(_SEEN.c[name]).label(name) for name in ("memory_bytes", "power_mw")]
    chosen = sa.select(_SEEN.c.project, _SEEN.c.lease, *columns).join(leases, _OF).where(where)
    return {(row.project, row.lease): row for row in tx.all(chosen.group_by(_SEEN.c.project, _SEEN.c.lease))}


class Hours:
    """What was seen of leases hour by hour, spread evenly over the seconds of the hour that are billed."""

    def __init__(self, tx: Transaction, held: Iterable[sa.Row[Any]]) -> None:
        names: dict[str, list[str]] = {}
        for lease in held:
            names.setdefault(lease.project, []).append(lease.lease)
        self._seen: dict[tuple[str, str, int], tuple[int, int]] = {}
        for project, of_project in names.items():
            for row in tx.named(_OF_PROJECT, _SEEN.c.lease, of_project, of_project=project):
                self._seen[project, row.lease, row.hour] = (row.known_ms, row.used_ms)

    @property
    def any(self) -> bool:
        """Say whether anything was seen of any of them."""
        return bool(self._seen)

    def between(self, lease: sa.Row[Any], billed: tuple[int, int], begin_s: int, end_s: int) -> tuple[int, int]:
        """Return (known, used) ms of [begin_s, end_s) of a lease; what is cut at seconds adds up to the whole."""
        known_ms = used_ms = 0
        for hour in range(begin_s // HOUR_S, -(-end_s // HOUR_S)) if self._seen else ():
            seen = self._seen.get((lease.project, lease.lease, hour))
            if seen is None:
                continue
            first, last = max(billed[0], hour * HOUR_S), min(billed[1], (hour + 1) * HOUR_S)
            a, b, length = max(begin_s, first) - first, min(end_s, last) - first, last - first
            known, used = _within(1000 * length, *seen)
            known_ms += known * b // length - known * a // length
            used_ms += used * b // length - used * a // length
        return known_ms, used_ms


def use(lease: sa.Row[Any], allocated_s: int, seen: sa.Row[Any] | None) -> DeviceUse:
    """Say how busy the device of a lease was."""
    known_ms, used_ms = (0, 0) if seen is None else (int(seen.known_ms), int(seen.used_ms))
    known_ms, used_ms = _within(1000 * allocated_s, known_ms, used_ms)
    return DeviceUse(
        lease=lease.lease,
        task=lease.task,
        device=lease.device,
        sku=lease.sku,
        virtual=lease.virtual,
        allocated_s=allocated_s,
        used_ms=used_ms if known_ms else None,
        idle_ms=known_ms - used_ms if known_ms else None,
        memory_bytes=None if seen is None else seen.memory_bytes,
        power_mw=None if seen is None else seen.power_mw,
        energy_mj=None if seen is None or seen.energy_mj is None else int(seen.energy_mj),
    )


_OF = (leases.c.project == _SEEN.c.project) & (leases.c.lease == _SEEN.c.lease)
_SUMMED = ("known_ms", "used_ms", "energy_mj")
_ADD = (
    device_use.update()
    .where(device_use.c.project == sa.bindparam("of_project"))
    .where(device_use.c.sku == sa.bindparam("of_sku"))
    .values({name: device_use.c[name] + sa.bindparam(f"more_{name}", type_=sa.BigInteger) for name in _SUMMED})
)


def _take(tx: Transaction, project: str, samples: list[DeviceSample]) -> int:
    names = sorted({sample.lease for sample in samples})
    held = {row.lease: row for row in tx.all(sa.select(leases).where(_among(leases, project, names)))}
    before = {(row.lease, row.hour): row for row in tx.all(sa.select(_SEEN).where(_among(_SEEN, project, names)))}
    sums: dict[str, dict[str, int]] = {}
    kept = 0
    for sample in samples:
        lease, known = held.get(sample.lease), before.get((sample.lease, sample.hour))
        if lease is None or lease.virtual or not _during(tx, lease, sample.hour):
            continue
        if known is not None and known.sampled_ms >= sample.sampled_ms:
            continue
        values = sample.model_dump()
        if known is None:
            tx.insert(_SEEN, project=project, **values)
        else:
            this = _among(_SEEN, project, [sample.lease]) & (_SEEN.c.hour == sample.hour)
            tx.run(_SEEN.update().where(this).values(values))
        more = sums.setdefault(lease.sku, dict.fromkeys(_SUMMED, 0))
        for name in _SUMMED:
            more[name] += (values[name] or 0) - (0 if known is None else getattr(known, name) or 0)
        kept += 1
    for sku, more in sorted(sums.items()):
        if not tx.run(_ADD, {"of_project": project, "of_sku": sku, **{f"more_{name}": more[name] for name in _SUMMED}}):
            tx.insert(device_use, project=project, sku=sku, **more)
    return kept


def _within(most_ms: int, known_ms: int, used_ms: int) -> tuple[int, int]:
    """Cut what was seen down to what is billed: up to a second more is held, and as busy as the rest."""
    return (known_ms, used_ms) if known_ms <= most_ms else (most_ms, used_ms * most_ms // known_ms)


def _among(table: sa.Table, project: str, names: list[str]) -> sa.ColumnElement[bool]:
    return (table.c.project == project) & table.c.lease.in_(names)


def _during(tx: Transaction, lease: sa.Row[Any], hour: int) -> bool:
    return bool(lease.anchor_ns // _HOUR_NS <= hour <= tx.now_ns // _HOUR_NS + _SKEW_HOURS)
