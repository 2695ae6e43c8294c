"""Budgets: the limits that were set, which of them bind a run, and how each stands.

A run's own budget is one more limit beside those of its project. This module only counts and compares; what is stopped,
and what may start, is `trainlet_functions.state.funds`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from trainlet.core.bills import FULL_SHARE
from trainlet.core.budgets import Budget, BudgetView, amount
from trainlet.core.clocks import rfc3339
from trainlet.core.durations import nearest
from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.gpus import CATALOGUE
from trainlet_functions.billing import spending
from trainlet_functions.state import schema, stops
from trainlet_functions.state.database import Transaction

_TABLE, _HOLDS, _TASKS = schema.budgets, schema.holds, schema.tasks
_ALL = sa.select(_TABLE).order_by(_TABLE.c.name)
_OF_RUN = sa.select(schema.runs.c.budget_nano).where(schema.runs.c.id == sa.bindparam("this_run"))


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit with its name; `run_id` marks a run's own, which has none."""

    name: str
    terms: Budget
    run_id: str = ""

    @property
    def most(self) -> int:
        """Return the limit in what is counted: nano-units, or device-seconds in parts of 5040."""
        terms = self.terms
        return terms.money_nano if terms.money_nano is not None else (terms.gpu_seconds or 0) * FULL_SHARE

    @property
    def unit(self) -> str:
        """Return what people read: a currency, or GPU-seconds."""
        return "GPU-seconds" if self.terms.money_nano is None else self.terms.currency

    def shown(self, counted: int) -> int:
        """Return a counted amount as people read it: whole GPU-seconds, never less than were used."""
        return counted if self.terms.money_nano is not None else -(-counted // FULL_SHARE)

    def of(self, use: spending.Use) -> int:
        """Return the part of a use that counts here."""
        return use[0] if self.terms.money_nano is None else use[1]

    def binds(self, project: str) -> bool:
        """Say whether it covers a project."""
        covers = self.terms.covers
        return project.startswith(covers[:-1]) if covers.endswith("*") else project == covers

    def covered(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
        """Build the condition for the projects that it covers."""
        covers = self.terms.covers
        if covers == "*":
            return sa.true()
        return column.like(covers[:-1] + "%") if covers.endswith("*") else column == covers

    def days(self, now_ns: int) -> tuple[int, int] | None:
        """Return the days [first, past) of its period that now lies in; None: there is no end."""
        if self.terms.per == "total":
            return None
        today = now_ns // (spending.DAY_S * 10**9)
        if self.terms.per == "day":
            return today, today + 1
        date = datetime.fromtimestamp(today * spending.DAY_S, UTC)
        first = today - date.day + 1
        following = datetime(date.year + date.month // 12, date.month % 12 + 1, 1, tzinfo=UTC)
        return first, int(following.timestamp()) // spending.DAY_S

    def words(self, spent: int, now_ns: int) -> str:
        """Say in words that it is spent; the figures of other projects are left out."""
        named = stops.OF_RUN if self.run_id else f"the budget {self.name!r} of {self.terms.covers}"
        sums = f" ({amount(self.shown(spent), self.unit)} of {amount(self.shown(self.most), self.unit)})"
        kind = f" for {self.terms.sku}" if self.terms.sku else ""
        days = self.days(now_ns)
        again = "" if days is None else f", until {rfc3339(days[1] * spending.DAY_S * 10**9)}"
        return f"{named}{kind} is spent{sums if self.is_private else ''}{again}"

    @property
    def is_private(self) -> bool:
        """Say whether its figures are those of one project only."""
        return not self.terms.covers.endswith("*")


def put(tx: Transaction, name: str, terms: Budget, by: str) -> BudgetView:
    """Set a budget, or set it anew; what was used in its period stays used. Raises UserError for what can never bind."""
    if terms.money_nano is not None and terms.currency != tx.prices.currency:
        raise UserError(f"Prices are in {tx.prices.currency}, so a budget in {terms.currency} would hold nothing back.")
    if terms.sku is not None:
        _check_sku(tx, terms.sku)
    values = {
        "covers": terms.covers,
        "terms": terms.model_dump_json(),
        "updated_ns": tx.now_ns,
        "set_by": by,
    }
    if not tx.run(_TABLE.update().where(_TABLE.c.name == name).values(values)):
        tx.insert(_TABLE, name=name, **values)
    notes = schema.budget_notes
    tx.run(notes.delete().where(notes.c.budget == name))
    return get(tx, name)


def _check_sku(tx: Transaction, sku: str) -> None:
    known = {model.sku for model in CATALOGUE} | {f"{model.sku}/{one}" for model in CATALOGUE for one in model.slices}
    known |= {name for version in tx.prices.versions for name in version.per_gpu_hour}
    metered = sa.select(schema.spending.c.sku).where(schema.spending.c.sku == sku).limit(1)
    if sku not in known and tx.conn.execute(metered).first() is None:
        raise UserError(f"{sku!r} is no device that was ever priced or used. {nearest(sku, sorted(known))}")


def delete(tx: Transaction, name: str) -> None:
    """Remove a budget; raises NotFoundError."""
    if not tx.run(_TABLE.delete().where(_TABLE.c.name == name)):
        raise _unknown(tx, name)
    for table in (schema.budget_notes, _HOLDS):
        tx.run(table.delete().where(table.c.budget == name))


def find(tx: Transaction, name: str) -> Limit | None:
    """Return a limit that was set, None when there is none of this name."""
    row = tx.one(sa.select(_TABLE).where(_TABLE.c.name == name))
    return None if row is None else _limit(row)


def get(tx: Transaction, name: str, project: str | None = None) -> BudgetView:
    """Return a budget and how it stands, for an admin or for a `project` that it binds; raises NotFoundError."""
    row = tx.one(sa.select(_TABLE).where(_TABLE.c.name == name))
    if row is None or (project is not None and not _limit(row).binds(project)):
        raise _unknown(tx, name, project)
    return _view(tx, row, project)


def all_(tx: Transaction, project: str | None = None) -> list[BudgetView]:
    """Return all budgets, or those that bind a project, by name."""
    return [_view(tx, row, project) for row in tx.all(_ALL) if project is None or _limit(row).binds(project)]


def set_limits(tx: Transaction) -> list[Limit]:
    """Return every limit that was set, but those of runs."""
    return [_limit(row) for row in tx.all(_ALL)]


def limits(tx: Transaction, project: str, run_id: str) -> list[Limit]:
    """Return what binds a run: its own budget first, then those of its project."""
    own = tx.conn.execute(_OF_RUN, {"this_run": run_id}).scalar()
    found = [] if own is None else [of_run(project, run_id, int(own), tx.prices.currency)]
    return found + [limit for limit in set_limits(tx) if limit.binds(project)]


def of_run(project: str, run_id: str, money_nano: int, currency: str) -> Limit:
    """Return a run's own budget as the limit that it is."""
    terms = Budget.model_construct(
        covers=project, money_nano=money_nano, currency=currency, gpu_seconds=None, sku=None, per="total",
        action="stop", strict=False, warn_at=(80,),
    )  # fmt: skip
    return Limit("", terms, run_id)


def used(tx: Transaction, limit: Limit) -> int:
    """Return what was used of a limit in its period of now, open leases included."""
    where = limit.covered(schema.spending.c.project)
    return limit.of(spending.used(tx, where, limit.run_id, limit.days(tx.now_ns), limit.terms.sku))


def held(tx: Transaction, name: str, but: str = "") -> int:
    """Return what a strict budget has set aside for attempts that are dispatched or run, without those of one task."""
    live = _TASKS.c.state.in_(("dispatched", "running")) & (_TASKS.c.epoch == _HOLDS.c.epoch)
    joined = _TASKS.join(_HOLDS, _HOLDS.c.task == _TASKS.c.key)
    where = live & (_HOLDS.c.budget == name) & (_TASKS.c.key != but)
    return int(tx.conn.execute(sa.select(sa.func.sum(_HOLDS.c.amount)).select_from(joined).where(where)).scalar() or 0)


@functools.lru_cache(maxsize=1024)
def _terms(text: str) -> Budget:
    return Budget.model_validate_json(text)


def _limit(row: sa.Row[Any]) -> Limit:
    return Limit(row.name, _terms(row.terms))


def _view(tx: Transaction, row: sa.Row[Any], project: str | None) -> BudgetView:
    limit = _limit(row)
    spent, aside, terms = used(tx, limit), held(tx, row.name), limit.terms
    figures: dict[str, Any] = {}
    if project is None or limit.is_private:
        percent = math.floor(spent * 10_000 / limit.most) / 100
        figures = {"used": limit.shown(spent), "held": limit.shown(aside), "percent": percent}
    days = limit.days(tx.now_ns)
    since, until = (None, None) if days is None else (rfc3339(day * spending.DAY_S * 10**9) for day in days)
    return BudgetView(
        name=row.name,
        covers=terms.covers,
        limit=limit.shown(limit.most),
        unit=limit.unit,
        sku=terms.sku,
        per=terms.per,
        action=terms.action,
        strict=terms.strict,
        warn_at=terms.warn_at,
        state=state_of(limit, spent),
        since=since,
        until=until,
        set_by=row.set_by,
        updated_at=rfc3339(row.updated_ns),
        **figures,
    )


def state_of(limit: Limit, spent: int) -> Any:
    """Return open, warned or spent."""
    if spent >= limit.most:
        return "spent"
    return "warned" if passed(limit, spent) else "open"


def passed(limit: Limit, spent: int) -> list[int]:
    """Return the percentages to tell of that were reached, and 100 when it is spent."""
    marks = {*limit.terms.warn_at, 100}
    return sorted(one for one in marks if spent * 100 >= limit.most * one)


def _unknown(tx: Transaction, name: str, project: str | None = None) -> NotFoundError:
    seen: Sequence[str] = [limit.name for limit in set_limits(tx) if project is None or limit.binds(project)]
    return NotFoundError(f"There is no budget {name!r}. There are: {', '.join(seen) or 'none'}.")
