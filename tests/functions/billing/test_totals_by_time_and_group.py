"""Sums of usage by time and group add up to the ledger, whatever the resolution, the zone and the page."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.core import ranges
from trainlet.core.bills import FULL_SHARE, UsageTotal
from trainlet.core.errors import NotFoundError, UserError
from trainlet_functions.billing import reports, totals

ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia")
LEASE = st.tuples(
    st.integers(0, 200_000),
    st.integers(0, 90_000),
    st.sampled_from((5040, 2520, 719)),
    st.sampled_from(("L4", "Abacus")),
)


def pages(ledger: Any, **fields: Any) -> list[UsageTotal]:
    asked = totals.Question(**{"project": "p", "run_id": None, "start_s": None, "end_s": None, **fields})
    found: list[UsageTotal] = []
    after: int | None = None
    for _ in range(1000):
        with ledger.database.read() as tx:
            page = totals.totals(tx, asked, after)
        found += page.items
        if page.next is None:
            return found
        after = page.next
    raise AssertionError("the pages do not end")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    held=st.lists(LEASE, min_size=1, max_size=4),
    resolution=st.sampled_from(("m", "h", "d")),
    zone=st.sampled_from(ZONES),
    by=st.sampled_from(((), ("sku",), ("run", "phase"), ("tag:team",), ("project", "step", "device"))),
)
def test_totals_add_up_to_the_ledger(ledger: Any, price: Any, held: Any, resolution: Any, zone: str, by: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.price(price(f"v{begin_s}", begin_s + 50_001, L4="3.3333"))
    for index, (later, seconds, share, sku) in enumerate(held):
        phases = (("setup", 0), ("run", 7 * 10**9))
        more = {"share": share, "sku": sku, "phases": phases, "tags": {"team": f"t{index % 2}"}}
        ledger.use("p", f"{begin_s}-{index}", begin_s + later, seconds, run_id=f"r{index}", **more)
    when = {"start_s": begin_s - 10**7, "end_s": begin_s + 10**6}
    found = pages(ledger, **when, resolution=resolution, by=by, tz=ranges.zone(zone))
    with ledger.database.read() as tx:
        rows = reports.usage(tx, "p").rows
    assert sum(one.cost_nano for one in found) == sum(row.cost_nano or 0 for row in rows)
    assert sum(one.unpriced_s for one in found) == sum(row.seconds for row in rows if row.cost_nano is None)
    keys = [(one.start_s, *one.group.values()) for one in found]
    assert keys == sorted(set(keys))
    for one in found:
        assert one.start_s < one.end_s


def test_every_second_of_a_run_is_shown_with_what_it_cost(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s + 0.5, 3.2, run_id="r", uuid="GPU-1", phases=(("setup", 0), ("run", 10**9)))
    ledger.use("p", "b", begin_s + 2, 2, run_id="r", uuid="GPU-2")
    ledger.use("p", "c", begin_s, 9, run_id="other", uuid="GPU-3")
    found = pages(ledger, run_id="r", resolution="s", by=("phase",))
    assert [(one.start_s - begin_s, one.group["phase"], one.parts // FULL_SHARE) for one in found] == [
        (1, "setup", 1), (2, "run", 2), (3, "run", 2),
    ]  # fmt: skip
    assert {one.cost_nano // (one.parts // FULL_SHARE) for one in found} == {10**6}


def test_pages_end_at_buckets_and_leave_nothing_out(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s + 1800, 40_000)
    ledger.use("p", "b", begin_s + 10**6, 5_000)
    whole = pages(ledger, start_s=begin_s, resolution="h")
    monkeypatch.setattr(totals, "BUCKETS", 2)
    assert pages(ledger, start_s=begin_s, resolution="h") == whole
    assert [one.parts // FULL_SHARE for one in whole] == [1800, *[3600] * 10, 2200, 800, 3600, 600]


def test_a_range_cuts_what_lies_outside(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 100)
    ledger.at(begin_s + 100)
    (one,) = pages(ledger, start_s=begin_s + 30, end_s=begin_s + 40)
    assert (one.parts, one.cost_nano) == (10 * FULL_SHARE, 10 * 10**6)


def test_a_range_that_makes_no_sense_says_why(ledger: Any) -> None:
    now_s = int(ledger.clock.wall_ns() // 10**9)
    for start_s, end_s, words in (
        (now_s - 5, now_s - 5, "is empty"),
        (now_s - 5, now_s - 6, "is reversed"),
        (now_s + 60, now_s + 90, "in the future"),
    ):
        with pytest.raises(UserError, match=words):
            pages(ledger, start_s=start_s, end_s=end_s)
    with pytest.raises(UserError, match="Did you mean 'sku'"):
        pages(ledger, by=("skuu",))
    with pytest.raises(NotFoundError, match="no run 'nobody'"):
        pages(ledger, run_id="nobody")


def test_usage_of_others_is_theirs(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 10)
    ledger.use("q", "b", begin_s, 20)
    assert [one.parts // FULL_SHARE for one in pages(ledger, start_s=begin_s, end_s=begin_s + 99)] == [10]
    both = pages(ledger, project=None, start_s=begin_s, end_s=begin_s + 99, by=("project",))
    assert {one.group["project"]: one.parts // FULL_SHARE for one in both} == {"p": 10, "q": 20}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("resolution", ["m", "h", "d"])
def test_buckets_of_a_zone_follow_each_other_without_a_gap(zone: str, resolution: Any) -> None:
    tz = ranges.zone(zone)
    # Apia left out a whole day at the end of 2011; the others set their clocks in March, April, October or November.
    for around in (1_325_203_200, 1_774_746_000, 1_775_314_800, 1_792_890_000, 1_793_511_000):
        second = around - 7200 if resolution == "m" else around - 200_000
        spans = []
        while second < around + (7200 if resolution == "m" else 200_000):
            spans.append(ranges.bucket(second, resolution, tz))
            second = spans[-1].end_s
        assert all(one.end_s == after.start_s for one, after in itertools.pairwise(spans))
        assert all(ranges.bucket(one.end_s - 1, resolution, tz) == one for one in spans)
