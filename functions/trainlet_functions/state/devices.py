"""The devices of this machine, and which attempt holds which: no device ever has two holders.

A generic virtual device has no SKU of its own: it takes on the one that the task asks for, and every record says that
it is virtual.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core.specs import GpuRequest, Resources
from trainlet.core.wire import Device
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, loads

_TABLE = schema.devices
GENERIC = "any"
_GONE = -1  # the position of a device that this machine has no more, but that is still held
_PRESENT = sa.select(_TABLE).where(_TABLE.c.position != _GONE).order_by(_TABLE.c.position)


def register(tx: Transaction, found: list[Device]) -> None:
    """Replace the list of devices. SKU `any` marks a generic virtual one.

    Those that are held keep their holder; one that is gone is forgotten when its holder lets go of it.
    """
    known = {row.uuid for row in tx.all(sa.select(_TABLE.c.uuid))}
    for position, device in enumerate(found):
        values = {
            "position": position,
            "sku": None if device.sku == GENERIC else device.sku,
            "info": device.model_dump_json(),
        }
        if device.uuid in known:
            tx.run(_TABLE.update().where(_TABLE.c.uuid == device.uuid).values(values))
        else:
            tx.run(_TABLE.insert().values(uuid=device.uuid, **values))
    gone = _TABLE.c.uuid.not_in([device.uuid for device in found])
    tx.run(_TABLE.delete().where(gone & _TABLE.c.task.is_(None)))
    tx.run(_TABLE.update().where(gone).values(position=_GONE))


def listed(tx: Transaction) -> list[Device]:
    """Return all devices, as what they are held or as what they are."""
    return [_device(row, row.held_as) for row in tx.all(_PRESENT)]


def fits_ever(tx: Transaction, resources: Resources) -> str | None:
    """Return why the request can never be met on this machine, or None when it can."""
    if not resources.gpus:
        return None
    rows = tx.all(_PRESENT)
    if any(len(_candidates(rows, one)) >= one.count for one in resources.gpus):
        return None
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.sku or "virtual"] = totals.get(row.sku or "virtual", 0) + 1
    have = ", ".join(f"{count} x {sku}" for sku, count in sorted(totals.items())) or "no device"
    return f"{words(resources)} can never be placed here: this machine has {have}"


def allocate(
    tx: Transaction, resources: Resources, task: str, epoch: int, reserved: set[str] | None = None
) -> list[Device] | str:
    """Give devices to an attempt, the first alternative that fits; or return in words why it waits.

    `reserved` holds the kinds that others wait for who came first; a request that has to wait adds its own.
    """
    kept = set() if reserved is None else reserved
    rows = tx.all(_PRESENT)
    possible = [(wanted, found) for wanted in resources.gpus if len(found := _candidates(rows, wanted)) >= wanted.count]
    for wanted, found in possible:
        free = [row for row in found if row.task is None]
        if len(free) >= wanted.count and _kind(found) not in kept:
            chosen = free[: wanted.count]
            where = _TABLE.c.uuid.in_([row.uuid for row in chosen])
            tx.run(_TABLE.update().where(where).values(task=task, epoch=epoch, held_as=wanted.sku))
            return [_device(row, wanted.sku) for row in chosen]
    first = possible[0][1] if possible else []
    overtaken = all(_kind(found) in kept for _, found in possible)
    kept.update(_kind(found) for _, found in possible)
    if overtaken:
        return f"waiting for {words(resources)}: earlier tasks go first"
    free_count = sum(row.task is None for row in first)
    return f"waiting for {words(resources)}: {free_count} of {len(first)} {'device' if len(first) == 1 else 'devices'} free"


def matching(resources: Resources, found: list[Device]) -> list[Device] | None:
    """Return those of a worker's own devices that meet a request, or None when they do not."""
    if not resources.gpus:
        return []
    for wanted in resources.gpus:
        right = [device for device in found if device.sku == wanted.sku]
        if len(right) >= wanted.count:
            return right[: wanted.count]
    return None


def held(tx: Transaction, task: str) -> list[Device]:
    """Return the devices that a task holds."""
    rows = tx.all(sa.select(_TABLE).where(_TABLE.c.task == task).order_by(_TABLE.c.position))
    return [_device(row, row.held_as) for row in rows]


def release(tx: Transaction, task: str) -> None:
    """Take back all devices of a task."""
    tx.run(_TABLE.delete().where((_TABLE.c.task == task) & (_TABLE.c.position == _GONE)))
    tx.run(_TABLE.update().where(_TABLE.c.task == task).values(task=None, epoch=None, held_as=None))


def words(resources: Resources) -> str:
    """Say a request in words."""
    return " or ".join(f"{one.count} x {one.sku}" for one in resources.gpus)


def _candidates(rows: list[sa.Row[Any]], wanted: GpuRequest) -> list[sa.Row[Any]]:
    """Return devices of the SKU; generic virtual ones stand in where the machine has none of it."""
    real = [row for row in rows if row.sku == wanted.sku]
    return real or [row for row in rows if row.sku is None]


def _kind(found: list[sa.Row[Any]]) -> str:
    """Return the name under which devices of a kind are reserved; generic ones are one kind."""
    return found[0].sku or GENERIC


def _device(row: sa.Row[Any], held_as: str | None) -> Device:
    device = Device.model_validate(loads(row.info))
    return device.model_copy(update={"sku": held_as}) if held_as else device
