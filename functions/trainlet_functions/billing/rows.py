"""Rows of the billing ledger, made of leases and price versions by pure functions.

A row's id is a function of what it is, so the same usage always has the same id. A correction takes rows back and adds
others; it never changes one. This module knows no tables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from trainlet.core.bills import Period, Row
from trainlet_functions.billing.prices import HOUR_S, NANO, PriceList
from trainlet_functions.billing.rating import Terms, rate
from trainlet_functions.metering.segments import Segment

# ISO 4217: how many decimals the minor unit of a currency has, where it is not two.
_MINOR = {
    **dict.fromkeys(
        ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"), 0
    ),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """A lease as billing sees it: whom it belongs to, what it held, and its whole seconds by phase."""

    terms: Terms
    lease: str
    run_id: str
    task: str
    epoch: int
    function: str
    device: str
    virtual: bool
    segments: Sequence[Segment]
    tags: Mapping[str, str] = field(default_factory=dict)


def rated(usage: Usage, prices: PriceList, from_s: int, until_s: int) -> list[Row]:
    """Price what a lease used within [from_s, until_s), in rows that cross no hour, no period and no price change."""
    clipped = [
        one
        if from_s <= one.start_s and one.end_s <= until_s
        else Segment(one.phase, max(one.start_s, from_s), min(one.end_s, until_s))
        for one in usage.segments
        if one.start_s < until_s and one.end_s > from_s
    ]
    terms, currency, make = usage.terms, prices.currency, tuple.__new__  # as in `rate`
    named, project = f"{terms.project}/{usage.lease}/", terms.project
    whose = (usage.lease, usage.run_id, usage.task, usage.epoch, usage.function, usage.device, terms.sku)
    how = (usage.virtual, terms.rate, terms.share, terms.part, usage.tags)
    return [
        make(
            Row,
            (
                f"{named}{start_s}+{end_s - start_s}", project, _period_of_hour(start_s // HOUR_S), "usage", start_s, end_s,
                currency, cost, list_cost, *whose, *how, phase, version, price, list_price, "", "",
            ),
        )
        for (phase, start_s, end_s), version, list_price, price, list_cost, cost in rate(clipped, terms, prices)
    ]  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _period_of_hour(hour: int) -> str:
    return str(Period.of(hour * HOUR_S))


def corrections(billed: Iterable[Row], truth: Iterable[Row], period: Period) -> list[Row]:
    """Return what makes `billed` rows of closed periods say what is true today, booked in an open `period`.

    Each row that no longer holds is taken back, and each that was missing is added. An added row points at the row whose
    seconds it touches, where there is one.
    """
    taken_back: set[str] = set()
    live: dict[tuple[object, ...], Row] = {}
    rows = list(billed)
    for row in rows:
        if row.kind == "reversal":
            taken_back.add(row.corrects)
    for row in rows:
        if row.kind != "reversal" and row.id not in taken_back:
            live[_facts(row)] = row
    wanted = {_facts(row): row for row in truth}
    gone = [row for facts, row in live.items() if facts not in wanted]
    made: list[Row] = [
        row._replace(
            id=f"{row.id}/reversed-{period}",
            period=str(period),
            kind="reversal",
            cost_nano=_negative(row.cost_nano),
            list_cost_nano=_negative(row.list_cost_nano),
            corrects=row.id,
            corrected_period=str(Period.of(row.start_s)),
        )
        for row in gone
    ]
    for facts, row in wanted.items():
        if facts not in live:
            before = next((one.id for one in gone if one.start_s < row.end_s and row.start_s < one.end_s), "")
            made.append(
                row._replace(
                    id=f"{row.id}/corrected-{period}",
                    period=str(period),
                    kind="correction",
                    corrects=before,
                    corrected_period=str(Period.of(row.start_s)),
                )
            )
    return sorted(made, key=lambda row: (row.start_s, row.kind != "reversal", row.id))


def _facts(row: Row) -> tuple[object, ...]:
    """Return what makes two rows the same charge."""
    device = (row.lease, row.device, row.sku, row.virtual, row.rate, row.share, row.part)
    when = (row.phase, row.start_s, row.end_s)
    return (*device, *when, row.version, row.price_nano, row.list_price_nano, row.cost_nano, row.list_cost_nano)


def _negative(nano: int | None) -> int | None:
    return None if nano is None else -nano


def payable_nano(metered_nano: int, currency: str) -> int:
    """Round a sum once to the minor unit of its currency, half to even."""
    minor = NANO // int(10 ** _MINOR.get(currency, 2))
    return int((Decimal(metered_nano) / minor).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)) * minor


def rounding(project: str, period: Period, invoice: str, metered_nano: int, currency: str) -> Row | None:
    """Return the one row that makes an invoice payable, or None where it is so already."""
    nano = payable_nano(metered_nano, currency) - metered_nano
    if not nano:
        return None
    return Row(
        id=f"{invoice}/rounding",
        project=project,
        period=str(period),
        kind="rounding",
        start_s=period.start_s,
        end_s=period.end_s,
        currency=currency,
        cost_nano=nano,
        list_cost_nano=nano,
    )
