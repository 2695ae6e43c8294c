"""Admission: which queued tasks are dispatched now, the oldest first, and in words why the others wait.

It runs inside the transaction that frees or wants something, so a task that can start never waits for a tick. Tasks of
one version of a function form a lane, and only the heads of the lanes are looked at: the cost of a pass does not grow
with the number of tasks that wait. A head that does not fit reserves the kinds of devices it wants, so nobody who came
later takes them away; tasks that want something else go on.
"""

from __future__ import annotations

import heapq
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.specs import FunctionSpec
from trainlet_functions.billing import budgets
from trainlet_functions.state import devices, functions, funds, outbox, schema, transitions
from trainlet_functions.state.database import Transaction

START_S = 3600.0  # how long a task of the local pool waits for a worker before it fails
SILENT_S = 300.0  # how long a silent worker counts where nobody tells that it is gone
_TABLE = schema.tasks
_LIVE = _TABLE.c.state.in_(("dispatched", "running"))


def lane(project: str, function: str, digest: str) -> str:
    """Return the queue of a version of a function; tasks of one lane never overtake each other."""
    return f"{project}/{function}/{digest}"


def admit(tx: Transaction) -> int:
    """Dispatch what fits; returns how many."""
    heads = [(row.created_ns, row.key, row) for row in tx.conn.execute(_HEADS, {"now_ns": tx.now_ns})]
    if not heads:
        return 0
    heapq.heapify(heads)
    room = _Room(tx)
    dispatched = 0
    while heads:
        _, _, task = heapq.heappop(heads)
        spec = functions.spec(tx, task.project, task.function, task.digest)
        never = devices.fits_ever(tx, spec.resources) if tx.capacity.owns_devices else None
        if never is not None:
            _fail(tx, task, never)
        else:
            reason = room.place(task, spec)
            if reason:
                if task.reason != reason:
                    transitions.touch(tx, task, reason=reason)
                continue
            dispatched += reason is None
        following = tx.conn.execute(_FIRST, {"now_ns": tx.now_ns, "in_lane": task.lane}).one_or_none()
        if following is not None:
            heapq.heappush(heads, (following.created_ns, following.key, following))
    return dispatched


class _Room:
    """What is free during one pass, and what is kept for those who came first."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._reserved: set[str] = set()
        self._workers: dict[tuple[str, str], int] = {}
        cpu = 0
        for project, function, gpu, count in live(tx):
            self._workers[project, function] = self._workers.get((project, function), 0) + count
            cpu += 0 if gpu else count
        self._slots = None if tx.capacity.cpu_slots is None else tx.capacity.cpu_slots - cpu

    def place(self, task: sa.Row[Any], spec: FunctionSpec) -> str | None:
        """Dispatch a task at its next epoch, or return why it waits (ENDED when it does not wait, but has ended)."""
        tx, function = self._tx, (task.project, task.function)
        if self._workers.get(function, 0) >= spec.max_workers:
            return f"waiting for a worker: all {spec.max_workers} of {task.function} are busy"
        if not task.gpu and self._slots is not None:
            if self._slots <= 0:
                return f"waiting for a CPU slot: all {tx.capacity.cpu_slots} are busy"
            self._slots -= 1
        if task.gpu:
            bound = budgets.limits(tx, task.project, task.run_id)
            payable = funds.choose(tx, task, spec, bound)
            if isinstance(payable, str):
                return payable
            wanted = spec.resources.model_copy(update={"gpus": payable})
            given: list[wire.Device] | str | None = None
            if tx.capacity.owns_devices:
                given = devices.allocate(tx, wanted, task.key, task.epoch + 1, self._reserved)
            if isinstance(given, str):
                return given
            funds.reserve(tx, task, spec, given, bound)
        self._workers[function] = self._workers.get(function, 0) + 1
        _dispatch(tx, task, spec)
        return None


def _dispatch(tx: Transaction, task: sa.Row[Any], spec: FunctionSpec) -> None:
    epoch = task.epoch + 1
    reason = "waiting for a worker" if epoch == 1 else f"waiting for a worker, attempt {epoch}"
    columns = {
        "epoch": epoch,
        "announced_ns": tx.now_ns,
        "announcements": 1,
        "deadline_ns": tx.now_ns + round(START_S * 1e9) if tx.capacity.owns_devices else None,
    }
    row = transitions.move(tx, task, "dispatched", reason, "admission", **columns)
    outbox.wake_up(tx, row, spec, epoch, 1)


def _fail(tx: Transaction, task: sa.Row[Any], never: str) -> None:
    """End a task that was accepted for devices which are not here any more (T3)."""
    hint = "Ask for other devices, or start the platform with them; run.resume() tries again."
    error = wire.ErrorInfo(kind="platform", type="NoDevice", message=never, hint=hint)
    transitions.move(tx, task, "failed", never, "admission", error=error.model_dump_json())


def behind(function: str) -> str:
    """Say why a task waits that is not the first of its lane."""
    return f"waiting: earlier tasks of {function} go first"


def live(tx: Transaction) -> list[tuple[str, str, bool, int]]:
    """Return (project, function, gpu, number of dispatched and running tasks)."""
    return [(str(row[0]), str(row[1]), bool(row[2]), int(row[3])) for row in tx.conn.execute(_COUNTS)]


def demand(tx: Transaction) -> dict[tuple[str, str], tuple[FunctionSpec, int]]:
    """Return per function how many workers are wanted: running + dispatched tasks, and the spec of the newest.

    A worker that is not heard of any more takes no task, so it is wanted beside those that do; on a cluster only for a
    while, because nobody says when its pod is gone.
    """
    counts: dict[tuple[str, str], int] = {}
    for project, function, _gpu, count in live(tx):
        counts[project, function] = counts.get((project, function), 0) + count
    wanted: dict[tuple[str, str], tuple[FunctionSpec, int]] = {}
    table = schema.workers
    grouped = sa.select(table.c.project, table.c.function, sa.func.count().label("number")).where(table.c.silent)
    if not tx.capacity.owns_devices:
        grouped = grouped.where(table.c.seen_ns > tx.now_ns - round(SILENT_S * 1e9))
    silent = {
        (row.project, row.function): int(row.number)
        for row in tx.all(grouped.group_by(table.c.project, table.c.function))
    }
    for (project, function), count in counts.items():
        spec = functions.newest(tx, project, function)
        wanted[project, function] = (spec, min(count, spec.max_workers) + silent.get((project, function), 0))
    return wanted


def waiting_for_workers(tx: Transaction) -> dict[tuple[str, str], list[str]]:
    """Return the keys of tasks that were announced and that no worker took in time, by (project, function)."""
    since_ns = tx.now_ns - round(tx.limits.announce_s / 2 * 1e9)
    late = (_TABLE.c.state == "dispatched") & (_TABLE.c.updated_ns < since_ns)
    found: dict[tuple[str, str], list[str]] = {}
    for row in tx.all(sa.select(_TABLE.c.project, _TABLE.c.function, _TABLE.c.key).where(late).limit(1000)):
        found.setdefault((row.project, row.function), []).append(row.key)
    return found


def _first(in_lane: sa.ColumnElement[str]) -> sa.Select[Any]:
    ready = (_TABLE.c.state == "queued") & (_TABLE.c.not_before_ns <= sa.bindparam("now_ns", type_=sa.BigInteger))
    return (
        sa.select(_TABLE).where(ready & (_TABLE.c.lane == in_lane)).order_by(_TABLE.c.created_ns, _TABLE.c.key).limit(1)
    )


def _heads() -> sa.Select[Any]:
    """Build the query for the oldest ready task of every lane: one index seek per lane, however many tasks wait."""
    other = schema.tasks.alias("other")
    queued = other.c.state == "queued"
    smallest = sa.select(sa.func.min(other.c.lane)).where(queued)
    lanes = sa.select(smallest.scalar_subquery().label("lane")).cte("lanes", recursive=True)
    following = smallest.where(other.c.lane > lanes.c.lane).correlate(lanes).scalar_subquery()
    lanes = lanes.union_all(sa.select(following).where(lanes.c.lane.is_not(None)))
    head = _first(lanes.c.lane).with_only_columns(_TABLE.c.key).correlate(lanes).scalar_subquery()
    keys = sa.select(head).where(lanes.c.lane.is_not(None))
    task = schema.tasks.alias("head")
    return sa.select(task).where(task.c.key.in_(keys))


_PARTS = (_TABLE.c.project, _TABLE.c.function, _TABLE.c.gpu)
_COUNTS = sa.select(*_PARTS, sa.func.count()).where(_LIVE).group_by(*_PARTS)
_FIRST = _first(sa.bindparam("in_lane", type_=sa.Text))
_HEADS = _heads()
