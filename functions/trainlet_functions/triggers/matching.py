"""Which subscriptions an event is for: looked up by exact type and source, so that a thousand of them cost no scan.

A project's subscriptions are compiled once per change of them (`trigger_books` counts the changes). What a filter says
about type and source exactly is its place in the index; only a subscription that says neither is asked about each event.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from trainlet.core.events import Event
from trainlet.core.triggers import Flow, Subscription
from trainlet_functions.state.database import Transaction
from trainlet_functions.triggers import filters, tables

_TABLE = tables.triggers
_KEPT = 64  # projects whose compiled subscriptions stay in memory


@dataclass(frozen=True, slots=True)
class Compiled:
    """A subscription that is ready to be asked."""

    name: str
    flow: Flow
    filter: filters.Filter


@dataclass(slots=True)
class Index:
    """The compiled subscriptions of one project at one version of its book."""

    version: int
    exact: dict[tuple[str | None, str | None], list[Compiled]] = field(default_factory=dict)

    def add(self, one: Compiled) -> None:
        """Put a subscription where the events that it can match will look for it."""
        for key in one.filter.index_keys() or [(None, None)]:
            self.exact.setdefault(key, []).append(one)

    def matching(self, event: Event) -> Iterator[Compiled]:
        """Yield the subscriptions that match an event, each once."""
        seen: set[str] = set()
        for key in ((event.type, event.source), (event.type, None), (None, event.source), (None, None)):
            for one in self.exact.get(key, ()):
                if one.name not in seen and one.filter.matches(event):
                    seen.add(one.name)
                    yield one


class Matcher:
    """The compiled subscriptions of all projects that this process has lately seen events of."""

    def __init__(self) -> None:
        self._indexes: dict[str, Index] = {}
        self._lock = threading.Lock()

    def index(self, tx: Transaction, project: str) -> Index:
        """Return the index as it is in this transaction."""
        version = version_of(tx, project)
        with self._lock:
            known = self._indexes.get(project)
        if known is not None and known.version == version:
            return known
        index = _compile(tx, project, version)
        with self._lock:
            if len(self._indexes) >= _KEPT:
                self._indexes.clear()
            self._indexes[project] = index
        return index


def version_of(tx: Transaction, project: str) -> int:
    """Return how often the triggers of a project have changed."""
    table = tables.trigger_books
    return int(tx.conn.execute(sa.select(table.c.version).where(table.c.project == project)).scalar() or 0)


def changed(tx: Transaction, project: str) -> None:
    """Note that the triggers of a project have changed: every process compiles them anew."""
    table = tables.trigger_books
    if not tx.run(table.update().where(table.c.project == project).values(version=table.c.version + 1)):
        tx.insert(table, project=project, version=1)


def _compile(tx: Transaction, project: str, version: int) -> Index:
    index = Index(version)
    mine = (_TABLE.c.project == project) & (_TABLE.c.kind == "event")
    for row in tx.all(sa.select(_TABLE.c.name, _TABLE.c.spec).where(mine).order_by(_TABLE.c.name)):
        index.add(compiled(row))
    return index


def compiled(row: sa.Row[Any]) -> Compiled:
    """Make a stored subscription ready to be asked."""
    spec = Subscription.model_validate_json(row.spec)
    return Compiled(row.name, spec.flow, filters.compile(spec.filters))
