"""Samples of devices are kept beside the ledger: each counts once, and used, idle and unknown add up to what is billed."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainlet.core.samples import DeviceSample, DeviceUse
from trainlet.core.wire import Device
from trainlet_functions import metering
from trainlet_functions.billing import reports, totals
from trainlet_functions.metering import samples
from trainlet_functions.metering.tables import device_use

HOUR_S = 3600


def hour_of(ledger: Any) -> int:
    return int(ledger.clock.wall_ns() // 10**9) // HOUR_S


def seen(lease: str, hour: int, sampled_s: int, used_s: int, **more: Any) -> DeviceSample:
    times = {"sampled_ms": 1000 * sampled_s, "known_ms": 1000 * sampled_s, "used_ms": 1000 * used_s}
    return DeviceSample.model_validate({"lease": lease, "hour": hour, **times, **more})


def take(ledger: Any, *given: DeviceSample, project: str = "p") -> int:
    with ledger.database.write() as tx:
        return samples.take(tx, project, given)


def use(ledger: Any, project: str = "p") -> dict[str, DeviceUse]:
    with ledger.database.read() as tx:
        return {one.lease: one for one in reports.usage(tx, project).devices}


def sums(ledger: Any) -> dict[tuple[str, str], tuple[int, int, int]]:
    with ledger.database.read() as tx:
        rows = tx.all(sa.select(device_use))
    return {(row.project, row.sku): (row.known_ms, row.used_ms, row.energy_mj) for row in rows}


def test_allocated_is_what_is_billed_and_used_idle_and_unknown_add_up_to_it(ledger: Any) -> None:
    first = hour_of(ledger)
    ledger.use("p", "a", first * HOUR_S + 0.5, 5000.4)
    took = take(
        ledger,
        seen("a", first, 3000, 1500, memory_bytes=7, power_mw=300_000, energy_mj=900),
        seen("a", first + 1, 1000, 500, memory_bytes=9, power_mw=200_000, energy_mj=100),
    )
    assert took == 2
    one = use(ledger)["a"]
    assert (one.allocated_s, one.used_ms, one.idle_ms, one.coverage) == (5000, 2_000_000, 2_000_000, 0.8)
    assert (one.memory_bytes, one.power_mw, one.energy_mj) == (9, 300_000, 1000)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    looks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3600), st.integers(0, 3600)), min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
def test_I9_used_never_exceeds_allocated_and_repeats_or_disorder_change_nothing(
    ledger: Any, looks: list[tuple[int, int, int]], seed: int
) -> None:
    first = hour_of(ledger) + 4
    project, lease = f"p{first}", f"l{first}"
    ledger.use(project, lease, first * HOUR_S + 100, 2 * HOUR_S)
    known = {(hour, length): min(used, length) for hour, length, used in looks}
    given = [seen(lease, first + hour, length, used) for (hour, length), used in known.items()]
    shuffled = given * 2
    random.Random(seed).shuffle(shuffled)
    for sample in shuffled:
        take(ledger, sample, project=project)
    best = {one.hour: one for one in sorted(given, key=lambda one: one.sampled_ms)}
    expected = tuple(sum(getattr(one, name) for one in best.values()) for name in ("known_ms", "used_ms"))
    assert sums(ledger).get((project, "L4"), (0, 0, 0))[:2] == expected
    one = use(ledger, project)[lease]
    assert (one.used_ms or 0) + (one.idle_ms or 0) <= 1000 * one.allocated_s == 7_200_000
    where = {"start_s": first * HOUR_S, "end_s": (first + 3) * HOUR_S, "run_id": None}
    found = {}
    for resolution in ("s", "m", "h", "d"):
        page: Any = None
        items = []
        while page is None or page.next is not None:
            with ledger.database.read() as tx:
                asked = totals.Question(project, **where, resolution=resolution)
                page = totals.totals(tx, asked, None if page is None else page.next)
            items += page.items
        assert all(item.used_ms <= item.known_ms and item.known_ms * 5040 <= item.parts * 1000 for item in items)
        found[resolution] = (sum(item.known_ms for item in items), sum(item.used_ms for item in items))
    assert len(set(found.values())) == 1, "seconds, minutes, hours and days add up to the same"


def test_nothing_is_said_of_virtual_devices_other_projects_unknown_leases_and_other_times(ledger: Any) -> None:
    first = hour_of(ledger)
    ledger.use("p", "a", first * HOUR_S, 100)
    ledger.use("q", "b", first * HOUR_S, 100)
    with ledger.database.write() as tx:
        event = ledger.event("v", first * HOUR_S, 100)
        metering.ingest(tx, "p", [event.model_copy(update={"device": Device(uuid="v", sku="L4", virtual=True)})])
    refused = [seen("v", first, 9, 9), seen("b", first, 9, 9), seen("nobody", first, 9, 9)]
    refused += [seen("a", first - 1, 9, 9), seen("a", first + 30, 9, 9)]
    assert take(ledger, *refused) == 0
    assert sums(ledger) == {}
    assert {name: (one.used_ms, one.coverage) for name, one in use(ledger).items()} == {"a": (None, 0), "v": (None, 0)}


def test_a_bill_is_the_same_with_samples_and_without(ledger: Any) -> None:
    first = hour_of(ledger)
    ledger.use("p", "a", first * HOUR_S, 100)
    with ledger.database.read() as tx:
        before = reports.usage(tx, "p")
    take(ledger, seen("a", first, 3600, 0, energy_mj=10**12))
    with ledger.database.read() as tx:
        after = reports.usage(tx, "p")
    assert (after.rows, after.cost_nano) == (before.rows, before.cost_nano)


@pytest.mark.parametrize(
    "wrong",
    [
        {"used_ms": 11},
        {"known_ms": 21},
        {"sampled_ms": 3_600_001},
        {"sampled_ms": -1},
        {"used_ms": -1},
        {"hour": -1},
        {"hour": 10**8},
        {"lease": ""},
        {"power_mw": 2**63},
        {"energy_mj": 10**12 + 1},
        {"memory_bytes": -1},
        {"more": 1},
    ],
)
def test_a_sample_that_cannot_be_is_refused_at_the_edge(wrong: dict[str, Any]) -> None:
    right = {"lease": "a", "hour": 1, "sampled_ms": 20, "known_ms": 10, "used_ms": 10}
    assert DeviceSample.model_validate(right)
    with pytest.raises(ValidationError):
        DeviceSample.model_validate({**right, **wrong})
