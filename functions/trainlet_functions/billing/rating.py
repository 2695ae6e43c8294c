"""Rating: segments and price versions in, priced rows out. Integers all the way, no rounding of rows.

A row costs `seconds * price_nano` for a whole device. A part of a device (time slicing: `share` of 5040 parts, the first
of them `part`) costs the difference of two whole-number clocks, so that whatever cuts are made in time or between
the parts of a device, the pieces sum to the whole to the last nano-unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainlet.core.bills import FULL_SHARE
from trainlet.core.wire import Rate
from trainlet_functions.billing.prices import HOUR_S, PriceList, UnitPrice
from trainlet_functions.metering.segments import Segment


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
    cuts_s, versions, whole = prices.cuts_s, prices.versions, terms.share == FULL_SHARE
    known: dict[tuple[int, str], tuple[str, UnitPrice | None]] = {}
    charges: list[Charge] = []
    for segment in segments:
        phase, start_s, end_s = segment
        place = bisect_right(cuts_s, start_s)
        within = (place == len(cuts_s) or end_s <= cuts_s[place]) and (not hourly or end_s <= _hour_after(start_s))
        for piece in (segment,) if within else _cut(segment, cuts_s, hourly):
            if not within:
                phase, start_s, end_s = piece
                place = bisect_right(cuts_s, start_s)
            found = known.get((place, phase))
            if found is None:
                version = versions[place]
                found = version.version, version.unit_price(terms.sku, phase, terms.rate, terms.project)
                known[place, phase] = found
            name, unit = found
            if unit is None:
                charges.append(Charge(piece, name, None, None, None, None))
                continue
            listed, agreed = unit.list_nano, unit.price_nano
            if whole:
                seconds = end_s - start_s
                charges.append(Charge(piece, name, listed, agreed, seconds * listed, seconds * agreed))
            else:
                span = (start_s, end_s, terms.share, terms.part)
                charges.append(Charge(piece, name, listed, agreed, cost_nano(listed, *span), cost_nano(agreed, *span)))
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


def _hour_after(second: int) -> int:
    return second - second % HOUR_S + HOUR_S


def _cut(segment: Segment, cuts_s: Sequence[int], hourly: bool) -> Iterator[Segment]:
    phase, begin, end = segment
    cuts = [cut for cut in cuts_s if begin < cut < end]
    if hourly:
        cuts = sorted({*cuts, *range(_hour_after(begin), end, HOUR_S)})
    for cut in (*cuts, end):
        yield Segment(phase, begin, cut)
        begin = cut
