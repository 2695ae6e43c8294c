"""Rating is exact integer arithmetic on segments and price versions, and nothing else."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from trainlet.core.bills import FULL_SHARE
from trainlet_functions.billing.prices import PriceList, PriceVersion, UnitPrice
from trainlet_functions.billing.rating import Charge, Terms, cost_nano, rate
from trainlet_functions.metering.segments import Segment, split_at


def version(name: str, from_s: int, hour: str) -> PriceVersion:
    start = datetime.fromtimestamp(from_s, UTC)
    return PriceVersion(version=name, currency="USD", effective_from=start, per_gpu_hour={"L4": Decimal(hour)})


ODD = PriceList(versions=(version("v1", 1000, "3.95"),))
L4 = Terms("L4")


def total(charges: list[Charge]) -> int:
    return sum(one.cost_nano or 0 for one in charges)


PRICES = PriceList(versions=(version("v1", 1000, "3.60"), version("v2", 2000, "7.20")))


def test_a_price_change_in_mid_run_cuts_the_segment_there() -> None:
    charges = rate([Segment("run", 1990, 2030)], L4, PRICES)
    assert [(one.version, one.segment.seconds, one.price_nano, one.cost_nano) for one in charges] == [
        ("v1", 10, 1_000_000, 10_000_000),
        ("v2", 30, 2_000_000, 60_000_000),
    ]


def test_a_sku_without_a_price_keeps_its_seconds_and_says_so() -> None:
    charges = rate([Segment("run", 1500, 1510)], Terms("Abacus-9"), PRICES)
    assert [(one.segment.seconds, one.price_nano, one.cost_nano) for one in charges] == [(10, None, None)]


def test_time_that_the_platform_needs_for_itself_costs_nothing() -> None:
    charges = rate([Segment("pull", 1500, 1510)], L4, PRICES)
    assert [(one.segment.seconds, one.cost_nano) for one in charges] == [(10, 0)]


@given(st.integers(0, 3000), st.integers(1, 9000), st.data(), st.lists(st.integers(0, 12_000), max_size=8))
def test_I4_any_cut_sums_to_the_same_cost(start_s: int, length: int, data: st.DataObject, cuts: list[int]) -> None:
    share = data.draw(st.integers(1, FULL_SHARE))
    terms = Terms("L4", share=share, part=data.draw(st.integers(0, FULL_SHARE - share)))
    whole = [Segment("run", start_s, start_s + length)]
    cost = total(rate(whole, terms, PRICES, hourly=False))
    pieces = rate(split_at(whole, cuts), terms, PRICES)
    assert total(pieces) == cost
    assert sum(one.list_cost_nano or 0 for one in pieces) == cost
    if share == FULL_SHARE:
        assert all(one.cost_nano == one.segment.seconds * (one.price_nano or 0) for one in pieces)


@given(st.integers(0, 3000), st.integers(1, 9000), st.lists(st.integers(1, 5039), max_size=12))
def test_I4_the_parts_of_a_device_cost_what_the_device_costs(start_s: int, length: int, cuts: list[int]) -> None:
    edges = sorted({0, *cuts, FULL_SHARE})
    whole = [Segment("run", start_s, start_s + length)]
    shared = [Terms("L4", share=after - before, part=before) for before, after in itertools.pairwise(edges)]
    assert sum(total(rate(whole, terms, ODD)) for terms in shared) == total(rate(whole, L4, ODD))


@given(st.integers(0, 3000), st.integers(1, 9000), st.integers(1, 5040))
def test_a_share_costs_its_exact_fraction_to_less_than_a_nano_unit(start_s: int, length: int, share: int) -> None:
    charged = total(rate([Segment("run", start_s, start_s + length)], Terms("L4", share=share), ODD))
    assert abs(Fraction(length * 1_097_222 * share, FULL_SHARE) - charged) < 1


@given(st.integers(0, 20_000), st.integers(1, 40_000))
def test_hourly_rows_never_cross_an_hour_or_a_price_change(start_s: int, length: int) -> None:
    rows = rate([Segment("run", start_s, start_s + length)], L4, PRICES)
    for row in rows:
        begin, last = row.segment.start_s, row.segment.end_s - 1
        assert begin // 3600 == last // 3600
        assert PRICES.at(begin) is PRICES.at(last)
        assert PRICES.at(begin).version == row.version
    assert [second for row in rows for second in (row.segment.start_s, row.segment.end_s)][:: len(rows) * 2 - 1] == [
        start_s,
        start_s + length,
    ]


def test_phases_rates_and_discounts_have_prices_of_their_own() -> None:
    given = {
        "version": "v1",
        "currency": "USD",
        "effective_from": "2026-01-01T00:00:00Z",
        "per_gpu_hour": {"L4": "3.60", "T4": "3.60"},
        "spot_per_gpu_hour": {"L4": "1.80"},
        "committed_per_gpu_hour": {"L4": "2.88"},
        "phases": {"idle": "0.5", "pull": "1"},
        "phase_per_gpu_hour": {"L4": {"drain": "0.36"}},
        "discounts": {"llm": {"*": "10", "T4": "25"}, "vision": "50"},
    }
    prices = PriceVersion.model_validate(given)
    unit = prices.unit_price
    assert unit("L4", "run") == UnitPrice(1_000_000, 1_000_000)
    assert unit("L4", "idle") == UnitPrice(500_000, 500_000)
    assert unit("L4", "pull") == UnitPrice(1_000_000, 1_000_000)
    assert unit("L4", "drain") == UnitPrice(100_000, 100_000)
    assert unit("L4", "lost") == UnitPrice(0, 0)
    assert unit("L4", "run", "spot") == UnitPrice(500_000, 500_000)
    assert unit("L4", "run", "committed") == UnitPrice(1_000_000, 800_000)
    assert unit("T4", "run", "spot") is None
    assert unit("L4", "run", project="llm") == UnitPrice(1_000_000, 900_000)
    assert unit("T4", "run", project="llm") == UnitPrice(1_000_000, 750_000)
    assert unit("L4", "run", "committed", "vision") == UnitPrice(1_000_000, 400_000)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9000), st.integers(1, 5040), st.integers(1, 5040))
@example(8683, 37, 1, 1, 1)
def test_I15_more_devices_and_higher_prices_never_cost_less(
    low: int, more: int, length: int, share: int, other: int
) -> None:
    def charge(nano: int, parts: int) -> int:
        return cost_nano(nano, 100, 100 + length, parts)

    assert charge(low, 5040) <= charge(low + more, 5040)
    # The cost of a part is exact within a nano-unit, which is what lets any cut of it sum to the whole.
    assert charge(low, share) <= charge(low + more, share) + 1
    assert charge(low, min(share, other)) <= charge(low, max(share, other)) + 1


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(0, 100))
def test_I15_more_time_never_costs_less(start_s: int, length: int, more: int) -> None:
    def cost(seconds: int) -> int:
        return total(rate([Segment("run", start_s, start_s + seconds)], L4, PRICES))

    assert cost(length) <= cost(length + more)


def test_a_changed_copy_of_a_price_version_has_prices_of_its_own() -> None:
    start = datetime.fromtimestamp(0, UTC)
    old = PriceVersion(version="v1", currency="USD", effective_from=start, per_gpu_hour={"L4": Decimal("3.60")})
    assert old.unit_price("L4", "run") == UnitPrice(10**6, 10**6)
    new = old.model_copy(update={"per_gpu_hour": {"L4": Decimal("7.20")}})
    assert new.unit_price("L4", "run") == UnitPrice(2 * 10**6, 2 * 10**6)
    assert old == PriceVersion.model_validate(old.model_dump())


def plainly(segments: list[Segment], terms: Terms, prices: PriceList) -> list[Charge]:
    """Return what `rate` says, by plain words: cut everything, then look up and multiply each piece."""
    most = max((segment.end_s for segment in segments), default=0)
    charges: list[Charge] = []
    for piece in split_at(segments, [*prices.cuts_s, *range(0, most, 3600)]):
        version = prices.at(piece.start_s)
        unit = version.unit_price(terms.sku, piece.phase, terms.rate, terms.project)
        if unit is None:
            charges.append(Charge(piece, version.version, None, None, None, None))
            continue
        span = (piece.start_s, piece.end_s, terms.share, terms.part)
        costs = cost_nano(unit.list_nano, *span), cost_nano(unit.price_nano, *span)
        charges.append(Charge(piece, version.version, unit.list_nano, unit.price_nano, *costs))
    return charges


lengths = st.sampled_from([1, 59, 600, 3600]) | st.integers(1, 9000)
pieces = st.tuples(st.sampled_from(["run", "setup", "pull"]), st.integers(0, 9000), lengths)
MIXED = PriceList(
    versions=(
        version("v1", 0, "3.95"),
        version("v2", 3000, "7.20").model_copy(update={"phases": {"setup": Decimal("0.5")}}),
        version("v3", 7200, "1").model_copy(update={"per_gpu_hour": {"H100-80GB": Decimal(1)}}),
        version("v4", 9001, "3.95").model_copy(update={"discounts": {"p": {"*": Decimal(7)}}}),
    )
)


@given(st.lists(pieces, max_size=8), st.sampled_from([(FULL_SHARE, 0), (720, 1440)]))
@example([("run", 7000, 600), ("run", 7700, 60)], (FULL_SHARE, 0))
def test_every_piece_is_priced_by_its_own_version_and_phase(
    drawn: list[tuple[str, int, int]], parts: tuple[int, int]
) -> None:
    terms = Terms("L4", "p", share=parts[0], part=parts[1])
    segments = [Segment(phase, start_s, start_s + length) for phase, start_s, length in drawn]
    assert rate(segments, terms, MIXED) == plainly(segments, terms, MIXED)
