"""Totals: usage by seconds, minutes, hours or days of a time zone, and by whom or what it was, summed here.

Every cut is on a whole second and costs are additive there, so totals of any resolution and grouping add up to the
ledger to the last nano-unit. The database chooses the leases of a page; a page is a bounded stretch of time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

import sqlalchemy as sa

from trainlet.core.bills import UsageTotal, UsageTotals
from trainlet.core.durations import nearest
from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.ranges import Resolution, Span, bucket
from trainlet_functions import metering
from trainlet_functions.billing import rating, reports
from trainlet_functions.metering import samples
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction, loads

DIMENSIONS = ("project", "run", "step", "sku", "function", "device", "phase", "lease")
BUCKETS = 5000  # of a page
_STREAM = 1000
_NS = 10**9
_LENGTHS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}  # in UTC
_HELD_NS = leases.c.anchor_ns + sa.func.coalesce(leases.c.close_ns, leases.c.heartbeat_ns)
_NEEDED = [
    leases.c[name]
    for name in (
        "project", "run_id", "function", "device", "lease", "sku", "rate", "share", "part", "tags", "anchor_ns",
        "heartbeat_ns", "close_ns", "until_ns", "lost_ns", "phases",
    )
]  # fmt: skip
_LAST_S = (2**63 - 1) // _NS  # in 2262; what a column of nanoseconds holds


@dataclass(frozen=True, slots=True)
class Question:
    """Whose usage, when, and how it is summed. `project` None: of all."""

    project: str | None
    run_id: str | None
    start_s: int | None
    end_s: int | None
    resolution: Resolution = "d"
    by: tuple[str, ...] = ()
    tz: tzinfo = UTC

    def __post_init__(self) -> None:
        for name in self.by:
            if name not in DIMENSIONS and not (name.startswith("tag:") and len(name) > 4):
                known = (*DIMENSIONS, "tag:NAME")
                raise UserError(f"?group_by={name[:60]!r} is nothing to group by. {nearest(name[:60], known)}")


def totals(tx: Transaction, asked: Question, after_s: int | None = None) -> UsageTotals:
    """Return a page of totals. Raises UserError for a range that is empty, reversed or in the future."""
    span = _span(tx, asked)
    mine = sa.true() if asked.project is None else leases.c.project == asked.project
    if asked.run_id is not None:
        mine &= leases.c.run_id == asked.run_id
    begin_s = span.start_s if after_s is None else min(max(after_s, span.start_s), span.end_s)
    first_ns = tx.conn.execute(
        sa.select(sa.func.min(leases.c.anchor_ns)).where(
            mine & (begin_s * _NS <= _HELD_NS) & (leases.c.anchor_ns < span.end_s * _NS)
        )
    ).scalar()
    if first_ns is None:
        return UsageTotals(items=[], start_s=span.start_s, end_s=span.end_s, currency=tx.prices.currency)
    begin_s = max(begin_s, int(first_ns) // _NS)
    until_s = min(span.end_s, _page_end(begin_s, asked))
    page = Span(begin_s, until_s)
    sums: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    ends: dict[int, int] = {}
    prices, key_of = tx.prices, _key_of(asked.by)
    for together in _overlapping(tx, mine, page, "step" in asked.by):
        seen = samples.Hours(tx, together)
        for lease in together:
            share, part = lease.share, lease.part
            billed = metering.billable(lease.anchor_ns, metering.elapsed_ns(lease)) if seen.any else (0, 0)
            for (phase, start_s, end_s), _, _, price_nano, _, _ in reports.charges(lease, prices):
                key = key_of(lease, phase)
                begin, end = max(start_s, page.start_s), min(end_s, page.end_s)
                while begin < end:
                    at_s, past_s = _bucket(begin, asked)
                    until = min(end, past_s)
                    ends[at_s] = past_s
                    known = sums.get((at_s, key))
                    if known is None:
                        known = sums[at_s, key] = [0, 0, 0, 0, 0]
                    known[0] += (until - begin) * share
                    if price_nano is None:
                        known[2] += until - begin
                    else:
                        known[1] += rating.cost_nano(price_nano, begin, until, share, part)
                    if seen.any:
                        known_ms, used_ms = seen.between(lease, billed, begin, until)
                        known[3] += known_ms
                        known[4] += used_ms
                    begin = until
    items = [
        UsageTotal(
            start_s=start_s,
            end_s=ends[start_s],
            start=datetime.fromtimestamp(start_s, asked.tz).isoformat().replace("+00:00", "Z"),
            group=dict(zip(asked.by, key, strict=True)),
            parts=parts,
            cost_nano=cost_nano,
            unpriced_s=unpriced_s,
            known_ms=known_ms,
            used_ms=used_ms,
        )
        for (start_s, key), (parts, cost_nano, unpriced_s, known_ms, used_ms) in sorted(sums.items())
    ]
    following = until_s if until_s < span.end_s else None
    return UsageTotals(items=items, start_s=span.start_s, end_s=span.end_s, currency=tx.prices.currency, next=following)


def _span(tx: Transaction, asked: Question) -> Span:
    """Return the range that was asked for: by default the whole of a run, else the present month of the zone."""
    start_s, end_s, now_s = asked.start_s, asked.end_s, tx.now_ns // _NS
    if start_s is None and asked.run_id is not None:
        mine = leases.c.run_id == asked.run_id
        if asked.project is not None:
            mine &= leases.c.project == asked.project
        found = tx.conn.execute(sa.select(sa.func.min(leases.c.anchor_ns), sa.func.max(_HELD_NS)).where(mine)).one()
        if found[0] is None:
            known = sa.select(schema.runs.c.id).where(schema.runs.c.id == asked.run_id)
            if asked.project is not None:
                known = known.where(schema.runs.c.project == asked.project)
            if tx.one(known) is None:
                raise NotFoundError(
                    f"There is no run {asked.run_id!r} with usage. `trainlet runs` lists those there are."
                )
            return Span(now_s, now_s + 1)
        return Span(int(found[0]) // _NS, max(int(found[1]) // _NS + 1, min(end_s or 0, _LAST_S)))
    if start_s is None:
        here = datetime.fromtimestamp(now_s, asked.tz)
        start_s = int(here.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp())
    end_s = max(now_s + 1, start_s + 1) if end_s is None else end_s
    if end_s == start_s:
        raise UserError("The range is empty: its start is its end, and the end is not part of it.")
    if end_s < start_s:
        raise UserError("The range is reversed: its end lies before its start. Exchange them.")
    if start_s > now_s:
        raise UserError("The range is in the future: nothing was used there yet. `trainlet cost estimate` looks ahead.")
    return Span(start_s, min(end_s, _LAST_S))


def _page_end(begin_s: int, asked: Question) -> int:
    """Return where a page ends: at the edge of a bucket, so that no bucket is on two pages."""
    return bucket(begin_s + _LENGTHS[asked.resolution] * BUCKETS, asked.resolution, asked.tz).start_s


def _overlapping(
    tx: Transaction, mine: sa.ColumnElement[bool], page: Span, named: bool
) -> Iterator[Sequence[sa.Row[Any]]]:
    """Yield the leases of a page, many together; with `named`, each with the step that its task is of."""
    tasks, chosen = schema.tasks, sa.select(*_NEEDED)
    if named:
        chosen = chosen.add_columns(tasks.c.node).join(tasks, tasks.c.key == leases.c.task, isouter=True)
    here = (leases.c.anchor_ns < page.end_s * _NS) & (page.start_s * _NS <= _HELD_NS)
    yield from tx.conn.execute(chosen.where(mine & here).execution_options(yield_per=_STREAM)).partitions()


def _bucket(second: int, asked: Question) -> tuple[int, int]:
    """Return [begin, end) of the bucket that a second is in."""
    if asked.tz is UTC:
        length = _LENGTHS[asked.resolution]
        begin = second - second % length
        return begin, begin + length
    found = bucket(second, asked.resolution, asked.tz)
    return found.start_s, found.end_s


def _key_of(by: Sequence[str]) -> Callable[[sa.Row[Any], str], tuple[str, ...]]:
    """Return what says which group a lease is in during a phase."""
    getters = [_GETTERS.get(name) or functools.partial(_tag, name=name[4:]) for name in by]
    return lambda lease, phase: tuple([get(lease, phase) for get in getters])


def _tag(lease: sa.Row[Any], _phase: str, *, name: str) -> str:
    return str(loads(lease.tags).get(name, ""))


_GETTERS: dict[str, Callable[[sa.Row[Any], str], str]] = {
    "project": lambda lease, _: str(lease.project),
    "run": lambda lease, _: str(lease.run_id),
    "step": lambda lease, _: str(lease.node or lease.function),
    "sku": lambda lease, _: str(lease.sku),
    "function": lambda lease, _: str(lease.function),
    "device": lambda lease, _: str(lease.device),
    "lease": lambda lease, _: str(lease.lease),
    "phase": lambda _, phase: phase,
}
