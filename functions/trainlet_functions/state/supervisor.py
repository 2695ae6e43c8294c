"""The supervisor: what time alone makes happen. Stale leases, lost dispatchers, timeouts, retries, re-announcements.

With several replicas of the API exactly one acts: the one that holds the leader row. Every duty is its own transaction
and can be repeated, so a supervisor that dies in the middle leaves nothing half done.

A lease says that somebody was heard of, so time in which nobody could be heard does not count against it: the API was
away, the machine slept, the wall clock was set, the database could not be written.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

import sqlalchemy as sa

from trainlet.core import wire
from trainlet.core.errors import PlatformError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.state import (
    admission,
    attempts,
    devices,
    functions,
    logs,
    outbox,
    runs,
    schema,
    stops,
    transitions,
)
from trainlet_functions.state.database import Database, Transaction

LEADER_S = 10.0
JOB_S = 1200.0  # how long the Job of an event may take to claim before it counts as lost
FORGET_S = 900.0  # how long a worker of a cluster, whose end nobody tells, stays known after its last word; also holds
_LOG = logging.getLogger(__name__)
_TASKS = schema.tasks
_ATTEMPTS = schema.attempts
_HOLDS = schema.holds


class Supervisor:
    """Acts on what has become due. `tick` is cheap when nothing has."""

    def __init__(self, database: Database, store: ObjectStore | None = None) -> None:
        self._database = database
        self._store = store
        self.leading = False
        self._last_ns: int | None = None  # when the last tick looked; None before it leads
        self.name = f"supervisor-{uuid.uuid4().hex[:12]}"
        self._duties: tuple[Callable[[Transaction], object], ...] = (
            stale_leases,
            lost_dispatchers,
            timeouts,
            overdue_stops,
            unclaimed,
            announce_again,
            forget_workers,
            forget_holds,
            admission.admit,
        )

    def tick(self) -> bool:
        """Do what is due; returns False when another replica is the leader."""
        self.leading = self._lead()
        if not self.leading:
            self._last_ns = None
            return False
        self._excuse_silence()
        with self._database.read() as tx:  # most ticks have nothing to do, and take no write lock
            began_ns = self._last_ns = tx.now_ns
            due = [duty for duty in self._duties if tx.conn.execute(_QUERIES[duty](tx).limit(1)).first() is not None]
        if due and admission.admit not in due:
            due.append(admission.admit)  # what a duty frees is given away at once
        for duty in due:
            with self._database.write() as tx:
                if self._is_deaf(began_ns, tx):  # nobody else could write either while this waited
                    return True
                duty(tx)
        self._archive()
        return True

    def demand(self, tx: Transaction) -> dict[tuple[str, str], int]:
        """Return how many workers each (project, function) wants now."""
        return {name: count for name, (_spec, count) in admission.demand(tx).items()}

    def _lead(self) -> bool:
        with self._database.read() as tx:
            table = schema.leaders
            row = tx.one(sa.select(table).where(table.c.name == "supervisor"))
            if row is not None and row.until_ns > tx.now_ns:
                if row.holder != self.name:
                    return False
                if row.until_ns - tx.now_ns > LEADER_S * 0.5e9:
                    return True
        with self._database.write() as tx:
            return lead(tx, self.name)

    def _excuse_silence(self) -> None:
        """Extend all leases when nobody could be heard since the last tick."""
        if self._last_ns is None:
            return
        with self._database.read() as tx:
            deaf = self._is_deaf(self._last_ns, tx)
        if deaf or self._database.failed_ns >= self._last_ns:
            with self._database.write() as tx:
                going = extend_leases(tx)
            _LOG.warning("nobody could be heard for a while: %d running attempts have time to report", going)

    @staticmethod
    def _is_deaf(since_ns: int, tx: Transaction) -> bool:
        return abs(tx.now_ns - since_ns) > tx.limits.lease_s * 0.5e9

    def _archive(self) -> None:
        if self._store is None:
            return
        with self._database.read() as tx:
            due = logs.to_archive(tx)
        for run_id in due:
            try:
                logs.archive(self._database, self._store, run_id)
            except (PlatformError, OSError) as error:
                _LOG.warning("the logs of %s stay in the database for now: %s", run_id, error)
                with self._database.write() as tx:
                    later = transitions.archive_due(tx)
                    tx.run(schema.runs.update().where(schema.runs.c.id == run_id).values(archive_due_ns=later))


def lead(tx: Transaction, holder: str) -> bool:
    """Take or renew the leader row; returns whether `holder` leads now."""
    table = schema.leaders
    until_ns = tx.now_ns + round(LEADER_S * 1e9)
    row = tx.one(sa.select(table).where(table.c.name == "supervisor"))
    if row is None:
        tx.run(table.insert().values(name="supervisor", holder=holder, until_ns=until_ns))
        return True
    if row.holder != holder and row.until_ns > tx.now_ns:
        return False
    tx.run(table.update().where(table.c.name == "supervisor").values(holder=holder, until_ns=until_ns))
    return True


def abdicate(tx: Transaction, holder: str) -> None:
    """Give the leader row back at once, at an orderly end."""
    tx.run(schema.leaders.delete().where(schema.leaders.c.holder == holder))


def stale_leases(tx: Transaction) -> None:
    """Give up attempts whose worker has not been heard of for a lease time."""
    for attempt in tx.all(_stale_leases(tx)):
        reason = f"worker {attempt.worker} was not heard of for {tx.limits.lease_s:g} s"
        _LOG.warning("%s", reason, extra={"task": attempt.task, "epoch": attempt.epoch})
        attempts.lost(tx, attempt.task, attempt.epoch, reason)


def lost_dispatchers(tx: Transaction) -> None:
    """Stop what nobody waits for: runs first, then tasks that came without a graph."""
    reason = "nobody waits for it any more; run.resume() continues from the last checkpoint"
    table = schema.dispatchers
    for gone in tx.all(_lost_dispatchers(tx)):
        owned = (schema.runs.c.project == gone.project) & (schema.runs.c.dispatcher == gone.id)
        for run in tx.all(sa.select(schema.runs).where(owned & (schema.runs.c.state == "running"))):
            runs.end(tx, run, "canceled", reason)
            stops.request_all(tx, _TASKS.c.run_id == run.id, "dispatcher_lost", reason)
        theirs = (_TASKS.c.project == gone.project) & (_TASKS.c.dispatcher == gone.id)
        stops.request_all(tx, theirs, "dispatcher_lost", reason)
        tx.run(table.delete().where((table.c.project == gone.project) & (table.c.id == gone.id)))


def timeouts(tx: Transaction) -> None:
    """Ask attempts that ran too long to stop."""
    for task in tx.all(_timeouts(tx)):
        stops.request(tx, task, "timeout", "the attempt reached its timeout")


def overdue_stops(tx: Transaction) -> None:
    """End attempts that were asked to stop and did not."""
    for task in tx.all(_overdue_stops(tx)):
        attempts.lost(tx, task.key, task.epoch, f"it did not stop in time ({task.stop_reason})")


def announce_again(tx: Transaction) -> None:
    """Announce dispatched tasks that nobody claimed in time, unless an announcement is still on its way."""
    for task in tx.all(_unannounced(tx)):
        spec = functions.spec(tx, task.project, task.function, task.digest)
        if spec.backend == "job" and tx.now_ns - task.announced_ns < JOB_S * 1e9:
            continue  # another event would be another Job beside the one whose pod is still on its way
        again = not outbox.pending(tx, task.key, task.epoch)
        number = task.announcements + again
        values = {"announced_ns": tx.now_ns, "announcements": number}
        tx.run(_TASKS.update().where(_TASKS.c.key == task.key).values(values))
        if again:
            outbox.wake_up(tx, task, spec, task.epoch, number)


def unclaimed(tx: Transaction) -> None:
    """Fail tasks of the local pool for which no worker came at all."""
    for task in tx.all(_unclaimed(tx)):
        message = f"no worker of {task.function} took the task within {admission.START_S:g} s"
        hint = "The worker's log says why it does not start; `trainlet doctor` checks this machine."
        error = wire.ErrorInfo(kind="platform", type="NoWorker", message=message, hint=hint)
        devices.release(tx, task.key)
        transitions.move(tx, task, "failed", message, "supervisor", error=error.model_dump_json())


def forget_workers(tx: Transaction) -> None:
    """Forget pods that are long gone; the local pool tells of its own."""
    tx.run(schema.workers.delete().where(_is_forgotten(tx)))


def forget_holds(tx: Transaction) -> None:
    """Forget what strict budgets had set aside for attempts that ended a while ago: no usage of theirs comes any more."""
    tx.run(_HOLDS.delete().where(_is_over(tx)))


def grace_after_restart(tx: Transaction) -> int:
    """Extend all leases: nobody could renew them while the API was away. Returns how many attempts go on."""
    if tx.conn.dialect.name == "sqlite":
        tx.run(schema.leaders.delete())  # one process owns the file, so whoever led before is gone
    return extend_leases(tx)


def extend_leases(tx: Transaction) -> int:
    """Give everybody who holds a lease time to be heard of again; returns how many attempts that are."""
    running = _ATTEMPTS.c.state == "running"
    until_ns = tx.now_ns + round(2 * tx.limits.lease_s * 1e9)
    tx.run(_ATTEMPTS.update().where(running).values(lease_until_ns=until_ns))
    unclaimed_yet = (_TASKS.c.state == "dispatched") & _TASKS.c.deadline_ns.is_not(None)
    tx.run(_TASKS.update().where(unclaimed_yet).values(deadline_ns=tx.now_ns + round(admission.START_S * 1e9)))
    table = schema.dispatchers
    wait_ns = tx.now_ns + round(tx.limits.dispatcher_lease_s * 1e9)
    tx.run(table.update().where(table.c.expires_ns < wait_ns).values(expires_ns=wait_ns))
    stops.extend_all(tx)
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(_ATTEMPTS).where(running)).scalar_one())


def _stale_leases(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(_ATTEMPTS).where((_ATTEMPTS.c.state == "running") & (_ATTEMPTS.c.lease_until_ns < tx.now_ns))


def _lost_dispatchers(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(schema.dispatchers).where(schema.dispatchers.c.expires_ns < tx.now_ns)


def _timeouts(tx: Transaction) -> sa.Select[tuple[object]]:
    late = (_TASKS.c.state == "running") & (_TASKS.c.deadline_ns < tx.now_ns) & _TASKS.c.stop_code.is_(None)
    return sa.select(_TASKS).where(late)


def _overdue_stops(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(_TASKS).where((_TASKS.c.state == "running") & (_TASKS.c.stop_by_ns < tx.now_ns))


def _unclaimed(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(_TASKS).where((_TASKS.c.state == "dispatched") & (_TASKS.c.deadline_ns < tx.now_ns))


def _unannounced(tx: Transaction) -> sa.Select[tuple[object]]:
    since_ns = tx.now_ns - round(tx.limits.announce_s * 1e9)
    return sa.select(_TASKS).where((_TASKS.c.state == "dispatched") & (_TASKS.c.announced_ns < since_ns))


def _is_forgotten(tx: Transaction) -> sa.ColumnElement[bool]:
    since_ns = tx.now_ns - round(FORGET_S * 1e9)
    return sa.false() if tx.capacity.owns_devices else schema.workers.c.seen_ns < since_ns


def _forgotten(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(schema.workers).where(_is_forgotten(tx))


def _is_over(tx: Transaction) -> sa.ColumnElement[bool]:
    since_ns = tx.now_ns - round(FORGET_S * 1e9)
    going = (_TASKS.c.key == _HOLDS.c.task) & (
        (_TASKS.c.updated_ns >= since_ns)
        | (_TASKS.c.state.in_(("dispatched", "running")) & (_TASKS.c.epoch == _HOLDS.c.epoch))
    )
    return ~sa.exists().where(going)


def _over(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(_HOLDS).where(_is_over(tx))


def _queued(tx: Transaction) -> sa.Select[tuple[object]]:
    return sa.select(_TASKS).where((_TASKS.c.state == "queued") & (_TASKS.c.not_before_ns <= tx.now_ns))


_QUERIES: dict[Callable[[Transaction], object], Callable[[Transaction], sa.Select[tuple[object]]]] = {
    stale_leases: _stale_leases,
    lost_dispatchers: _lost_dispatchers,
    timeouts: _timeouts,
    overdue_stops: _overdue_stops,
    unclaimed: _unclaimed,
    announce_again: _unannounced,
    forget_workers: _forgotten,
    forget_holds: _over,
    admission.admit: _queued,
}
