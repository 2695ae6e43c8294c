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
    """A segment priced by one version: `cost_nano = seconds * price_nano` exactly; None where the SKU has no price."""

    segment: Segment
    version: str
    price_nano: int | None
    cost_nano: int | None


def rate(segments: Iterable[Segment], sku: str, prices: PriceList, share: int = FULL_SHARE) -> list[Charge]:
    """Price the segments of one lease, cut where a new price version begins.

    A share of a device has a second price of its own, `price * share // 5040`, so that any cut of the seconds sums to
    the same cost.
    """
    charges: list[Charge] = []
    for segment in split_at(segments, prices.cuts_s):
        version = prices.at(segment.start_s)
        whole = 0 if segment.phase in FREE_PHASES else version.nano_per_second(sku)
        price = None if whole is None else whole * share // FULL_SHARE
        cost = None if price is None else segment.seconds * price
        charges.append(Charge(segment, version.version, price, cost))
    return charges
