"""Who holds which device, who waits, and in which order: for people who look, decided elsewhere (admission)."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.state import schema, views
from trainlet_functions.state.database import Transaction, loads

MOST = 200
_TABLE = schema.tasks


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and the task that holds it; `elsewhere` when that is another project's."""

    device: wire.Device
    task: wire.TaskView | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What is taken and what waits. `left_off` counts the waiting tasks that are not listed."""

    places: list[Place]
    running: list[wire.TaskView]
    waiting: list[wire.TaskView]
    left_off: int


def look(tx: Transaction, project: str) -> Occupancy:
    """Return what a project may see: its own tasks, and of the devices of this machine whether they are taken."""
    ours = _TABLE.c.project == project
    live = sa.select(_TABLE).where(ours & (_TABLE.c.state == "running")).order_by(_TABLE.c.created_ns).limit(MOST)
    queued = ours & _TABLE.c.state.in_(("queued", "dispatched"))
    first = sa.select(_TABLE).where(queued).order_by(_TABLE.c.created_ns, _TABLE.c.key).limit(MOST)
    waiting = views.task_views(tx, tx.all(first))
    running = [view for view in views.task_views(tx, tx.all(live)) if view.attempts]
    count = tx.conn.execute(sa.select(sa.func.count()).where(queued)).scalar_one()
    places = _own(tx, project) if tx.capacity.owns_devices else _of_attempts(running)
    return Occupancy(places, running, waiting, int(count) - len(waiting))


def _own(tx: Transaction, project: str) -> list[Place]:
    table = schema.devices
    rows = tx.all(sa.select(table).where(table.c.position >= 0).order_by(table.c.position))
    keys = {row.task for row in rows if row.task is not None}
    holders = tx.all(sa.select(_TABLE).where(_TABLE.c.key.in_(keys) & (_TABLE.c.project == project)))
    known = {view.key: view for view in views.task_views(tx, holders)}
    found = []
    for row in rows:
        device = wire.Device.model_validate(loads(row.info))
        if row.held_as:
            device = device.model_copy(update={"sku": row.held_as})
        found.append(Place(device, known.get(row.task), row.task is not None and row.task not in known))
    return found


def _of_attempts(running: list[wire.TaskView]) -> list[Place]:
    """Return the devices that pods have reported: on a cluster only Kubernetes knows those that are free."""
    return [Place(device, task) for task in running for device in task.attempts[-1].devices]
