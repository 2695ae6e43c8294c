"""Rating: segments and price versions in, priced rows out. Integers all the way, no rounding of rows.

A row costs `seconds * price_nano` for a whole device. A part of a device (time slicing: `share` of 5040 parts, the first
of them `part`) costs the difference of two whole-number clocks, so that whatever cuts are made in time or between
the parts of a device, the pieces sum to the whole to the last nano-unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trainlet.core.bills import FULL_SHARE
from trainlet.core.wire import Rate
from trainlet_functions.billing.prices import HOUR_S, PriceList, UnitPrice
from trainlet_functions.metering.segments import Segment

_NEVER = -(1 << 63)  # before every second


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease is priced by."""

    sku: str
    project: str = ""
    rate: Rate = "standard"
    share: int = FULL_SHARE
    part: int = 0


class Charge(NamedTuple):
    """A segment priced by one version; prices are per second of the whole device, None where the SKU has none."""

    segment: Segment
    version: str
    list_nano: int | None
    price_nano: int | None
    list_cost_nano: int | None
    cost_nano: int | None


def rate(segments: Iterable[Segment], terms: Terms, prices: PriceList, *, hourly: bool = True) -> list[Charge]:
    """Price the segments of one lease, cut where a new price version begins and, when `hourly`, at every UTC hour.

    A month begins on an hour, so an hourly row never crosses a billing period either.
    """
    cuts_s, whole = prices.cuts_s, terms.share == FULL_SHARE
    charges: list[Charge] = []
    add, make = charges.append, tuple.__new__  # what the classes do themselves, without a call: there are millions
    known: dict[str, tuple[str, UnitPrice | None]] = {}
    since_s = until_s = low_s = high_s = listed = agreed = 0
    name, of = "", None
    for segment in segments:
        phase, start_s, end_s = segment
        if phase == of and low_s <= start_s and end_s <= high_s:
            seconds = end_s - start_s
            add(make(Charge, (segment, name, listed, agreed, seconds * listed, seconds * agreed)))
            continue
        while start_s < end_s:
            if not since_s <= start_s < until_s:
                place = bisect_right(cuts_s, start_s)
                since_s = cuts_s[place - 1] if place else _NEVER
                until_s = cuts_s[place] if place < len(cuts_s) else -_NEVER
                version, known = prices.versions[place], {}
            low_s, high_s = since_s, until_s
            if hourly:
                hour_s = start_s - start_s % HOUR_S
                low_s, high_s = max(low_s, hour_s), min(high_s, hour_s + HOUR_S)
            if phase not in known:
                known[phase] = version.version, version.unit_price(terms.sku, phase, terms.rate, terms.project)
            name, unit = known[phase]
            until = min(end_s, high_s)
            piece, of = make(Segment, (phase, start_s, until)), None
            if unit is None:
                add(Charge(piece, name, None, None, None, None))
            elif whole:
                of, listed, agreed, seconds = phase, unit.list_nano, unit.price_nano, until - start_s
                add(make(Charge, (piece, name, listed, agreed, seconds * listed, seconds * agreed)))
            else:
                listed, agreed, span = unit.list_nano, unit.price_nano, (start_s, until, terms.share, terms.part)
                add(Charge(piece, name, listed, agreed, cost_nano(listed, *span), cost_nano(agreed, *span)))
            start_s = until
    return charges


def cost_nano(price_nano: int, start_s: int, end_s: int, share: int = FULL_SHARE, part: int = 0) -> int:
    """Return what [start_s, end_s) of a share costs: exact for a whole device, additive for any cut of time or parts."""
    if share == FULL_SHARE:
        return (end_s - start_s) * price_nano
    return _clock(price_nano, end_s, share, part) - _clock(price_nano, start_s, share, part)


def _clock(price_nano: int, second: int, share: int, part: int) -> int:
    """Return what the parts [part, part + share) would have cost since 1970, in whole nano-units."""
    whole = price_nano * second
    return whole * (part + share) // FULL_SHARE - whole * part // FULL_SHARE
