"""The engine of triggers: looks at what is due, one transaction each, and says how long there is nothing to do.

Any replica may look: a look decides inside of a write transaction, those are serial, and what was decided is no longer
due for the next one. Dying between two looks loses nothing, because every look begins from what is stored.
"""

from __future__ import annotations

import logging

import sqlalchemy as sa

from trainlet.core.errors import TrainletError
from trainlet_functions.state.database import Database
from trainlet_functions.triggers import flow, intake, polling, tables, ticks
from trainlet_functions.triggers.matching import Matcher

_LOG = logging.getLogger(__name__)
_TABLE = tables.triggers
BROKEN_S = 60.0  # how long a trigger that fails in the engine itself is left alone
FORGET_S = 3600.0


class Engine:
    """Moves events and moments on to runs."""

    def __init__(self, database: Database, matcher: Matcher) -> None:
        self._database = database
        self._matcher = matcher
        self._forget_ns = 0

    def work(self) -> int:
        """Do everything that is due now; returns how many transactions that took."""
        with self._database.read() as tx:
            over = tx.conn.execute(flow.ended(tx).limit(1)).first() is not None
            moments = [(row.project, row.name) for row in ticks.due(tx)]
            waiting = [(row.project, row.name) for row in flow.due(tx)]
            now_ns = tx.now_ns
        if over:
            with self._database.write() as tx:
                flow.settle(tx)
        for project, name in moments:
            self._look(project, name, moment=True)
        for project, name in waiting:
            self._look(project, name, moment=False)
        if now_ns >= self._forget_ns:
            self._forget_ns = now_ns + round(FORGET_S * 1e9)
            self._forget()
        return over + len(moments) + len(waiting)

    def poll(self) -> float:
        """Look at the places whose time has come; returns how long none is due."""
        with self._database.read() as tx:
            rows = polling.due(tx)
        for row in rows:
            polling.look(self._database, self._matcher, row)
        with self._database.read() as tx:
            soonest = sa.select(sa.func.min(_TABLE.c.poll_ns)).where(_TABLE.c.state == "active")
            at, now_ns = tx.conn.execute(soonest).scalar(), tx.now_ns
        return 60.0 if at is None else float(min(60.0, max(0.05, (at - now_ns) / 1e9)))

    def seconds_to_next(self, at_most: float) -> float:
        """Return how long nothing is due."""
        with self._database.read() as tx:
            soonest = sa.select(sa.func.min(_TABLE.c.due_ns), sa.func.min(_TABLE.c.tick_ns))
            times = [at for at in tx.conn.execute(soonest).one() if at is not None]
            now_ns = tx.now_ns
        return float(min([at_most, *(max(0.0, (at - now_ns) / 1e9) for at in times)]))

    def _look(self, project: str, name: str, *, moment: bool) -> None:
        try:
            with self._database.write() as tx:
                if moment:
                    ticks.tick(tx, project, name, self._matcher)
                else:
                    flow.advance(tx, project, name)
        except TrainletError as error:
            self._set_aside(project, name, str(error), moment=moment)
        except Exception as error:  # noqa: BLE001 - one trigger that fails must not stop the others
            _LOG.exception("trigger %s of %s failed", name, project)
            self._set_aside(project, name, f"{type(error).__name__}: {error}", moment=moment)

    def _set_aside(self, project: str, name: str, why: str, *, moment: bool) -> None:
        """Leave a trigger alone for a while, with the reason where people look."""
        with self._database.write() as tx:
            later_ns = tx.now_ns + round(BROKEN_S * 1e9)
            column = "tick_ns" if moment else "due_ns"
            this = (_TABLE.c.project == project) & (_TABLE.c.name == name)
            values = {column: later_ns, "reason": f"it could not start anything: {why}"[:1000]}
            tx.run(_TABLE.update().where(this).values(values))

    def _forget(self) -> None:
        while True:
            with self._database.write() as tx:
                if intake.forget(tx) == 0:
                    return
