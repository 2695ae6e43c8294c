"""`tl.billing`: what was spent, on what, and at which prices; sums are exact, as `Decimal`.

A report is made of the rows of the billing ledger by the time that was used, with every correction that is known by now. A
summary is made of them by the month that they are billed in, and is what the invoice says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

from trainlet.core import bills, ranges
from trainlet.core.errors import UserError

if TYPE_CHECKING:
    from trainlet.client.http import Client

Resolution = Literal["h", "d", "month"]
__all__ = ["Item", "Rate", "Summary", "rates", "report", "summary"]


@dataclass(frozen=True, slots=True)
class Item:
    """What one run (`object_id`) of a project (`environment_name`) cost within an interval.

    `cost` counts what has a price; `unpriced_seconds` is what has none yet. `cost_by_resource` is by SKU.
    """

    object_id: str
    description: str
    environment_name: str
    interval_start: datetime
    cost: Decimal
    seconds: int
    cost_by_resource: dict[str, Decimal]
    tags: dict[str, str]
    currency: str
    unpriced_seconds: int = 0
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """A month as it is billed: `metered_cost` and `adjustments` together are `billed_cost`.

    Adjustments are `corrections` of earlier months and, once the month is closed, the `rounding` of its invoice.
    """

    period: str
    state: bills.PeriodState
    project: str
    currency: str
    metered_cost: Decimal
    metered_cost_breakdown: dict[str, Decimal]
    adjustments: dict[str, Decimal]
    billed_cost: Decimal
    seconds: int
    unpriced_skus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rate:
    """What a SKU costs from a time on: exactly per second, and the hour that this stands for."""

    sku: str
    per_second: Decimal
    per_hour: Decimal
    currency: str
    version: str
    effective_from: datetime


@dataclass(slots=True)
class _Sum:
    nano: int = 0
    seconds: int = 0
    unpriced: int = 0
    virtual: bool = False
    functions: set[str] = field(default_factory=set)
    by_sku: dict[str, int] = field(default_factory=dict)


def report(
    *,
    during: str | None = None,
    start: str | None = None,
    end: str | None = None,
    resolution: Resolution = "d",
    tz: str | None = None,
    tag_names: Sequence[str] = (),
    all_projects: bool = False,
    client: Client | None = None,
) -> list[Item]:
    """Return what was spent per run and interval, of a range such as `during="last month"` or `start="2026-07-01"`.

    `resolution` is `h`, `d` or `month` in the time zone `tz`. `tag_names` are kept apart, and those alone are in `tags`;
    `*` is every tag. Raises UserError for a range that is empty, reversed or in the future.
    """
    if resolution not in get_args(Resolution):
        raise UserError(f"-r {resolution!r} is no resolution. Write h, d or month.")
    zone = ranges.zone(tz or "UTC")
    chosen = _span(during, start, end, zone)
    asked = client or _client()
    sums: dict[tuple[Any, ...], _Sum] = {}
    currency = ""
    for row in _rows(asked, bills.Period.of(chosen.start_s), bills.EVERY_PROJECT if all_projects else None):
        currency = row.currency
        if row.kind != "rounding":
            _add(sums, row, chosen, resolution, zone, tag_names)
    return [
        Item(
            object_id=run,
            description=", ".join(sorted(found.functions)),
            environment_name=project,
            interval_start=datetime.fromtimestamp(begin, zone),
            cost=money(found.nano),
            seconds=found.seconds,
            cost_by_resource={sku: money(nano) for sku, nano in sorted(found.by_sku.items())},
            tags=dict(tags),
            currency=currency,
            unpriced_seconds=found.unpriced,
            virtual=found.virtual,
        )
        for (begin, project, run, tags), found in sorted(sums.items())
        if found.seconds or found.nano or found.unpriced
    ]


def summary(*, period: str | None = None, all_projects: bool = False, client: Client | None = None) -> list[Summary]:
    """Return what each project is billed for a month (UTC), by default the one that goes on."""
    chosen = None if period is None else str(bills.Period.parse(period))
    asked = client or _client()
    with asked.billing_rows(chosen, bills.EVERY_PROJECT if all_projects else None) as (snapshot, rows):
        found: dict[str, list[bills.Row]] = {}
        for row in rows:
            found.setdefault(row.project, []).append(row)
    return [_summary(snapshot, project, of) for project, of in sorted(found.items())]


def rates(*, client: Client | None = None) -> list[Rate]:
    """Return the list price of every SKU now, and those that are known to come."""
    listed = (client or _client()).prices()["versions"]
    now = _now_s()
    holds = max((one["from_s"] for one in listed if one["from_s"] <= now), default=listed[0]["from_s"])
    return [
        Rate(
            sku=sku,
            per_second=money(nano),
            per_hour=money(nano * 3600),
            currency=version["currency"],
            version=version["version"],
            effective_from=datetime.fromtimestamp(version["from_s"], UTC),
        )
        for version in listed
        if version["from_s"] >= holds
        for sku, nano in version["nano_per_gpu_second"].items()
    ]


def money(nano: int) -> Decimal:
    """Return nano-units as an exact sum."""
    return Decimal(nano).scaleb(-9)


def _span(during: str | None, start: str | None, end: str | None, zone: tzinfo) -> ranges.Span:
    """Return the range that is named by words or by its ends; what has not happened yet is cut off."""
    now_s = _now_s()
    if during is not None and (start is not None or end is not None):
        raise UserError("--for and --start or --end say the same thing twice: give one of them.")
    if start is not None:
        begin = ranges.moment(start, zone)
        until = now_s if end is None else ranges.moment(end, zone)
    elif end is not None:
        raise UserError("--end needs --start. To see a month, write --for 2026-07.")
    else:
        named = ranges.parse(during or "this month", now_s, zone)
        begin, until = named.start_s, named.end_s
    first, last, now = (datetime.fromtimestamp(one, zone).isoformat() for one in (begin, until, now_s))
    if begin >= now_s:
        raise UserError(f"The range is in the future: it begins {first}, and it is {now} now.")
    if begin == until:
        raise UserError(f"The range is empty: it ends when it begins, at {first}.")
    if until < begin:
        raise UserError(f"The range is reversed: it ends {last}, before it begins, {first}. Swap the two.")
    return ranges.Span(begin, min(until, now_s))


def _interval(second: int, resolution: Resolution, zone: tzinfo) -> ranges.Span:
    if resolution != "month":
        return ranges.bucket(second, resolution, zone)
    return ranges.parse(f"{datetime.fromtimestamp(second, zone):%Y-%m}", second, zone)


def _add(
    sums: dict[tuple[Any, ...], _Sum],
    row: bills.Row,
    chosen: ranges.Span,
    resolution: Resolution,
    zone: tzinfo,
    names: Sequence[str],
) -> None:
    if row.end_s <= chosen.start_s or row.start_s >= chosen.end_s:
        return  # read for its period's sake: a later one may correct it
    tags = tuple(sorted((name, text) for name, text in row.tags.items() if name in names or "*" in names))
    sign = -1 if row.kind == "reversal" else 1
    for begin, start_s, end_s, nano in _pieces(row, chosen, resolution, zone):
        found = sums.setdefault((begin, row.project, row.run_id, tags), _Sum())
        found.seconds += sign * (end_s - start_s)
        found.nano += nano
        found.unpriced += sign * (end_s - start_s) if row.unpriced else 0
        found.virtual = found.virtual or row.virtual
        found.functions.add(row.function)
        found.by_sku[row.sku] = found.by_sku.get(row.sku, 0) + nano


def _pieces(
    row: bills.Row, chosen: ranges.Span, resolution: Resolution, zone: tzinfo
) -> Iterator[tuple[int, int, int, int]]:
    """Cut a row at intervals and at the ends of the range; the pieces of its cost sum to it exactly."""
    at = row.start_s
    while at < row.end_s:
        interval = _interval(at, resolution, zone)
        until = min(interval.end_s, row.end_s, *(edge for edge in (chosen.start_s, chosen.end_s) if edge > at))
        if chosen.start_s <= at < chosen.end_s:
            yield interval.start_s, at, until, row.cost_between(at, until)
        at = until


def _summary(snapshot: bills.Snapshot, project: str, rows: list[bills.Row]) -> Summary:
    def total(*kinds: bills.RowKind) -> Decimal:
        return money(sum(row.cost_nano or 0 for row in rows if row.kind in kinds))

    by_sku: dict[str, int] = {}
    for row in rows:
        if row.kind == "usage":
            by_sku[row.sku] = by_sku.get(row.sku, 0) + (row.cost_nano or 0)
    return Summary(
        period=snapshot.period,
        state=snapshot.state,
        project=project,
        currency=snapshot.currency,
        metered_cost=total("usage"),
        metered_cost_breakdown={sku: money(nano) for sku, nano in sorted(by_sku.items())},
        adjustments={"corrections": total("reversal", "correction"), "rounding": total("rounding")},
        billed_cost=total("usage", "reversal", "correction", "rounding"),
        seconds=sum(row.seconds for row in rows),
        unpriced_skus=tuple(sorted({row.sku for row in rows if row.unpriced})),
    )


def _rows(client: Client, since: bills.Period, scope: str | None) -> Iterable[bills.Row]:
    """Yield all rows that were booked since a period began, corrections of it in later ones included."""
    for one in client.billing_periods(scope):
        if bills.Period.parse(one.period) >= since:
            with client.billing_rows(one.period, scope) as (_, rows):
                yield from rows


def _client() -> Client:
    from trainlet.client import connect
    from trainlet.core.settings import Settings

    return connect(Settings.from_environment())


def _now_s() -> int:
    from trainlet.core.clocks import SystemClock

    return SystemClock().wall_ns() // 10**9
