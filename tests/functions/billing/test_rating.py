"""Rating is exact integer arithmetic on segments and price versions, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.billing.rating import rate
from trainlet_functions.metering.segments import Segment, split_at


def version(name: str, from_s: int, hour: str) -> PriceVersion:
    start = datetime.fromtimestamp(from_s, UTC)
    return PriceVersion(version=name, currency="USD", effective_from=start, per_gpu_hour={"L4": Decimal(hour)})


PRICES = PriceList(versions=(version("v1", 1000, "3.60"), version("v2", 2000, "7.20")))


def test_a_price_change_in_mid_run_cuts_the_segment_there() -> None:
    charges = rate([Segment("run", 1990, 2030)], "L4", PRICES)
    assert [(one.version, one.segment.seconds, one.price_nano, one.cost_nano) for one in charges] == [
        ("v1", 10, 1_000_000, 10_000_000),
        ("v2", 30, 2_000_000, 60_000_000),
    ]


def test_a_sku_without_a_price_keeps_its_seconds_and_says_so() -> None:
    charges = rate([Segment("run", 1500, 1510)], "Abacus-9", PRICES)
    assert [(one.segment.seconds, one.price_nano, one.cost_nano) for one in charges] == [(10, None, None)]


def test_time_that_the_platform_needs_for_itself_costs_nothing() -> None:
    charges = rate([Segment("pull", 1500, 1510)], "L4", PRICES)
    assert [(one.segment.seconds, one.cost_nano) for one in charges] == [(10, 0)]


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 5040), st.lists(st.integers(0, 6000), max_size=8))
def test_I4_any_cut_sums_to_the_same_cost(start_s: int, length: int, share: int, cuts: list[int]) -> None:
    whole = [Segment("run", start_s, start_s + length)]
    cost = sum(one.cost_nano or 0 for one in rate(whole, "L4", PRICES, share))
    pieces = rate(split_at(whole, cuts), "L4", PRICES, share)
    assert sum(one.cost_nano or 0 for one in pieces) == cost
    assert all(one.cost_nano == one.segment.seconds * (one.price_nano or 0) for one in pieces)


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(0, 100))
def test_more_time_never_costs_less(start_s: int, length: int, more: int) -> None:
    def cost(seconds: int) -> int:
        return sum(one.cost_nano or 0 for one in rate([Segment("run", start_s, start_s + seconds)], "L4", PRICES))

    assert cost(length) <= cost(length + more)
