"""Rating: segments and price versions in, priced rows out. Integers all the way, no rounding of rows.

A row costs `seconds * price_nano` for a whole device. A part of a device (time slicing: `share` of 5040 parts, the first
of them `part`) costs the difference of two whole-number clocks, so that whatever cuts are made in time or between
the parts of a device, the pieces sum to the whole to the last nano-unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainlet.core.bills import FULL_SHARE
from trainlet.core.wire import Rate
from trainlet_functions.billing.prices import HOUR_S, PriceList
from trainlet_functions.metering.segments import Segment


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lease is priced by."""

    sku: str
    project: str = ""
    rate: Rate = "standard"
    share: int = FULL_SHARE
    part: int = 0


@dataclass(frozen=True, slots=True)
class Charge:
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
    charges: list[Charge] = []
    for segment in segments:
        for piece in _cut(segment, prices, hourly):
            version = prices.at(piece.start_s)
            unit = version.unit_price(terms.sku, piece.phase, terms.rate, terms.project)
            if unit is None:
                charges.append(Charge(piece, version.version, None, None, None, None))
                continue
            span = (piece.start_s, piece.end_s, terms.share, terms.part)
            listed, agreed = unit.list_nano, unit.price_nano
            charges.append(
                Charge(piece, version.version, listed, agreed, cost_nano(listed, *span), cost_nano(agreed, *span))
            )
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


def _cut(segment: Segment, prices: PriceList, hourly: bool) -> Iterator[Segment]:
    begin, end = segment.start_s, segment.end_s
    cuts = [cut for cut in prices.cuts_s if begin < cut < end]
    if hourly and end // HOUR_S > begin // HOUR_S:
        first = begin - begin % HOUR_S + HOUR_S
        cuts = sorted({*cuts, *range(first, end, HOUR_S)})
    for cut in (*cuts, end):
        yield Segment(segment.phase, begin, cut)
        begin = cut
