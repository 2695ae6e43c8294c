"""Rating: segments and prices in, priced rows out. Integers all the way, no rounding of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainlet_functions.billing.prices import PriceList
from trainlet_functions.metering.segments import Segment, split_at

FREE_PHASES = frozenset({"pull"})  # time that the platform needs for itself
FULL_SHARE = 5040  # a time-sliced device is billed in parts of 5040


@dataclass(frozen=True, slots=True)
class Charge:
    """A segment priced by one version: `cost_nano = seconds * price_nano * share / 5040`, None without a price."""

    segment: Segment
    version: str
    price_nano: int | None
    cost_nano: int | None


def rate(segments: Iterable[Segment], sku: str, prices: PriceList, share: int = FULL_SHARE) -> list[Charge]:
    """Price the segments of one lease, cut where a new price version begins."""
    charges: list[Charge] = []
    for segment in split_at(segments, prices.cuts_s):
        version = prices.at(segment.start_s)
        price = 0 if segment.phase in FREE_PHASES else version.nano_per_second(sku)
        cost = None if price is None else segment.seconds * price * share // FULL_SHARE
        charges.append(Charge(segment, version.version, price, cost))
    return charges
