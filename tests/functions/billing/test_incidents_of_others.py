"""What went wrong elsewhere, as tests: each is named after what a customer saw on a bill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from trainlet.core.bills import FULL_SHARE
from trainlet_functions import metering
from trainlet_functions.billing import reports, totals
from trainlet_functions.state import ledger as books

HOUR_S = 3600


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def billed(ledger: Any, project: str = "p") -> tuple[int, int]:
    with ledger.database.read() as tx:
        report = reports.usage(tx, project)
    return report.gpu_seconds, report.cost_nano


def sums(ledger: Any, start_s: int, end_s: int, resolution: Any) -> list[tuple[int, int]]:
    """Return (begin, GPU-seconds) of every stretch."""
    asked = totals.Question("p", None, start_s, end_s, resolution)
    with ledger.database.read() as tx:
        return [(one.start_s, one.parts // FULL_SHARE) for one in totals.totals(tx, asked).items]


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_an_hour_in_which_the_number_of_gpus_changed_was_priced_at_the_last_one(
    ledger: Any, before: int, after: int
) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    for index in range(before):
        ledger.use("p", f"a{index}", begin_s, 1800, uuid=f"GPU-{index}")
    for index in range(after):
        ledger.use("p", f"b{index}", begin_s + 1800, 1800, uuid=f"GPU-{index}")
    assert billed(ledger) == (5 * 1800, 5 * 1800 * 10**6)
    assert sums(ledger, begin_s, begin_s + HOUR_S, "h") == [(begin_s, 5 * 1800)]


def test_a_node_that_crashed_was_billed_until_it_was_started_again(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 100, "heartbeat")
    ledger.at(begin_s + 50_000)
    with ledger.database.write() as tx:
        books.give_up(tx, "run-a.train", 1, fault=False)
    ledger.use("p", "a", begin_s, 50_000, "close")
    assert billed(ledger)[0] == 100


def test_a_full_hour_showed_fewer_than_3600_seconds(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s - 0.3, 3 * HOUR_S + 0.7)
    ledger.at(begin_s + 4 * HOUR_S)
    assert sums(ledger, begin_s, begin_s + 3 * HOUR_S, "h") == [(begin_s + n * HOUR_S, HOUR_S) for n in range(3)]


def test_without_heartbeats_nothing_was_billed(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 500, "close")
    assert billed(ledger)[0] == 500


def test_a_fresh_id_for_every_emission_multiplied_the_bill(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    for number in range(4):
        ledger.use("p", "a", begin_s, 600, "close", id=f"random-{number}", seq=number)
    assert billed(ledger)[0] == 600


def test_time_without_work_was_billed_as_work(ledger: Any, price: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    free = price("v2", begin_s - 5, L4="3.60")
    free = type(free).model_validate({**free.model_dump(), "phases": {"idle": "0"}})
    ledger.price(free)
    ledger.use("p", "a", begin_s, 100, phases=(("run", 0), ("idle", 60 * 10**9)))
    assert billed(ledger) == (100, 60 * 10**6)


def test_a_poller_that_was_started_twice_billed_the_job_twice(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 100, uuid="GPU-1")
    ledger.use("p", "b", begin_s, 100, uuid="GPU-1")
    assert billed(ledger)[0] == 100


@pytest.mark.parametrize(
    ("begin", "days"),
    [
        ("2016-12-31T12:00:00", {"2016-12-31": 43_200, "2017-01-01": 43_200}),  # the leap second is no second of POSIX
        ("2024-02-28T12:00:00", {"2024-02-28": 43_200, "2024-02-29": 86_400, "2024-03-01": 43_200}),
        ("2025-02-28T12:00:00", {"2025-02-28": 43_200, "2025-03-01": 43_200}),
        ("2100-02-28T12:00:00", {"2100-02-28": 43_200, "2100-03-01": 43_200}),
        ("2026-03-28T12:00:00", {"2026-03-28": 43_200, "2026-03-29": 43_200}),
    ],
)
def test_days_at_the_edges_of_the_calendar_have_86400_seconds(ledger: Any, begin: str, days: dict[str, int]) -> None:
    ledger.at(at(begin))
    ledger.use("p", "a", at(begin), sum(days.values()))
    start_s = at(min(days))
    expected = [(at(day), seconds) for day, seconds in sorted(days.items())]
    assert sums(ledger, start_s, start_s + 5 * 86_400, "d") == expected


def test_a_lease_of_ten_years_is_exact_to_the_second(ledger: Any) -> None:
    begin_s, end_s = at("2016-02-29"), at("2026-02-28")
    ledger.use("p", "a", begin_s, end_s - begin_s)
    assert billed(ledger) == (end_s - begin_s, (end_s - begin_s) * 10**6)
    found = sums(ledger, begin_s, end_s, "d")
    assert len(found) == 3652 and {seconds for _, seconds in found} == {86_400}


def test_a_length_of_zero_is_nothing_and_a_negative_one_is_refused(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    ledger.use("p", "a", begin_s, 0)
    assert billed(ledger) == (0, 0)
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        ledger.event("b", begin_s, -1)


def test_a_lease_that_ends_tomorrow_is_kept_aside_and_reported(ledger: Any) -> None:
    begin_s = int(ledger.clock.wall_ns() // 10**9)
    with ledger.database.write() as tx:
        metering.ingest(tx, "p", [ledger.event("a", begin_s + 2 * 86_400, 5), ledger.event("b", 5, 5)])
        refused = [one.reason for one in metering.refusals(tx, "p")]
    assert billed(ledger) == (0, 0)
    assert sorted(refused) == ["it ends more than a day in the future", "its lease began before the year 2000"]
