"""Periods are closed once; what comes later is a correction in the next one, and the closed one stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainlet.core.bills import Period
from trainlet.core.errors import ConflictError, UserError

JULY, AUGUST, SEPTEMBER = Period(2026, 7), Period(2026, 8), Period(2026, 9)
START = JULY.start_s
RATE = 1_000_000  # nano-USD per second of an L4


def test_a_lease_over_midnight_of_the_month_is_billed_in_both_to_the_second(ledger: Any) -> None:
    ledger.use("vision", "a", AUGUST.start_s - 4000, 8000)
    ledger.at(AUGUST.start_s + 9000)
    assert [(row.start_s - AUGUST.start_s, row.seconds) for row in ledger.rows(JULY)] == [(-4000, 400), (-3600, 3600)]
    assert [(row.start_s - AUGUST.start_s, row.seconds) for row in ledger.rows(AUGUST)] == [(0, 3600), (3600, 400)]


def test_an_invoice_is_its_rows_and_one_rounding(ledger: Any) -> None:
    ledger.use("vision", "a", START + 0.5, 1234.4)
    ledger.at(AUGUST.start_s)
    (invoice,) = ledger.close(JULY).invoices
    assert (invoice.seconds, invoice.metered_nano, invoice.payable_nano) == (1234, 1234 * RATE, 1_230_000_000)
    rows = ledger.rows(JULY)
    assert [row.kind for row in rows] == ["usage", "rounding"]
    assert sum(row.cost_nano for row in rows) == invoice.payable_nano
    assert rows[-1].cost_nano == invoice.rounding_nano == -4_000_000


def test_closing_again_changes_nothing_and_says_the_same(ledger: Any) -> None:
    ledger.use("vision", "a", START, 100)
    ledger.at(AUGUST.start_s)
    first = ledger.close(JULY)
    ledger.at(AUGUST.start_s + 86_400)
    assert ledger.close(JULY) == first
    assert first.state == "closed"


def test_I8_usage_after_the_close_is_a_correction_that_points_at_the_original(ledger: Any) -> None:
    ledger.use("vision", "a", START, 1000, "heartbeat")
    ledger.at(AUGUST.start_s)
    before, rows = ledger.close(JULY), ledger.rows(JULY)
    ledger.use("vision", "a", START, 1500, "close")
    ledger.use("vision", "late", START + 7200, 10)
    assert (ledger.view(JULY), ledger.rows(JULY)) == (before, rows)
    found = ledger.rows(AUGUST)
    assert [(row.kind, row.seconds, row.cost_nano, row.corrects, row.corrected_period) for row in found] == [
        ("reversal", -1000, -1000 * RATE, rows[0].id, "2026-07"),
        ("correction", 1500, 1500 * RATE, rows[0].id, "2026-07"),
        ("correction", 10, 10 * RATE, "", "2026-07"),
    ]
    ledger.at(SEPTEMBER.start_s)
    assert ledger.close(AUGUST).invoices[0].metered_nano == 510 * RATE
    assert ledger.rows(SEPTEMBER) == []
    assert ledger.view(JULY) == before


def test_a_lease_of_another_that_ends_a_billed_one_is_taken_back(ledger: Any) -> None:
    ledger.use("vision", "a", START, 100, uuid="GPU-0")
    ledger.at(AUGUST.start_s)
    ledger.close(JULY)
    ledger.use("speech", "b", START + 60, 100, uuid="GPU-0")
    assert [(row.project, row.kind, row.seconds) for row in ledger.rows(AUGUST)] == [
        ("speech", "correction", 100),
        ("vision", "reversal", -100),
        ("vision", "correction", 60),
    ]


def test_a_price_of_the_past_corrects_what_was_billed_with_another(ledger: Any, price: Callable[..., Any]) -> None:
    ledger.use("vision", "a", START + 1000, 1000)
    ledger.at(AUGUST.start_s)
    ledger.close(JULY)
    ledger.at(AUGUST.start_s + 10 * 86_400)
    ledger.price(price("v2", START + 1500, L4="1.80"))
    found = ledger.rows(AUGUST)
    assert [(row.kind, row.seconds, row.version, row.cost_nano) for row in found] == [
        ("reversal", -1000, "v1", -1000 * RATE),
        ("correction", 500, "v1", 500 * RATE),
        ("correction", 500, "v2", 250 * RATE),
    ]


def test_usage_without_a_price_stops_a_close_until_it_is_priced_or_allowed(
    ledger: Any, price: Callable[..., Any]
) -> None:
    ledger.use("vision", "a", START, 10, sku="Abacus-9")
    ledger.at(AUGUST.start_s)
    with pytest.raises(UserError, match="Abacus-9 by project vision has no price"):
        ledger.close(JULY)
    assert ledger.view(JULY).state == "closing"
    (invoice,) = ledger.close(JULY, unpriced=True).invoices
    assert (invoice.seconds, invoice.payable_nano, invoice.unpriced_skus) == (10, 0, ["Abacus-9"])
    ledger.price(price("v2", START, L4="3.60", Abacus_9="3.60"))
    assert [(row.kind, row.seconds, row.cost_nano) for row in ledger.rows(AUGUST)] == [
        ("reversal", -10, None),
        ("correction", 10, 10 * RATE),
    ]


def test_what_the_platform_lost_is_a_row_that_costs_nothing(ledger: Any) -> None:
    ledger.use("vision", "a", START, 100, phases=(("run", 0), ("lost", 40 * 10**9)))
    assert [(row.phase, row.seconds, row.cost_nano) for row in ledger.rows(JULY)] == [
        ("run", 40, 40 * RATE),
        ("lost", 60, 0),
    ]


def test_a_wall_clock_that_was_set_back_hides_no_change(ledger: Any) -> None:
    ledger.use("vision", "a", START, 100, "heartbeat")
    ledger.at(AUGUST.start_s + 7200)
    ledger.close(JULY)
    ledger.clock.step_wall(-3600)
    ledger.use("vision", "a", START, 200, "close")
    assert sum(row.seconds for row in ledger.rows(AUGUST)) == 100


def test_a_period_that_goes_on_is_not_closed(ledger: Any) -> None:
    ledger.at(AUGUST.start_s - 1)
    with pytest.raises(UserError, match="goes on until 2026-08-01"):
        ledger.close(JULY)


def test_periods_are_closed_in_their_order(ledger: Any) -> None:
    ledger.use("vision", "a", START, 100)
    ledger.at(SEPTEMBER.start_s)
    with pytest.raises(UserError, match="Period 2026-07 is open: close it before 2026-08"):
        ledger.close(AUGUST)
    ledger.close(JULY)
    with pytest.raises(ConflictError, match="All time before 2026-08 is closed"):
        ledger.close(Period(2026, 5))


def test_a_crash_while_closing_is_continued_by_closing_again(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainlet_functions.billing import closing

    for project in ("a", "b", "c"):
        ledger.use(project, project, START, 100)
    ledger.at(AUGUST.start_s)
    whole = closing._freeze

    def freeze(tx: Any, project: str, *rest: Any) -> None:
        whole(tx, project, *rest)
        if project == "b":
            raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(closing, "_freeze", freeze)
        with pytest.raises(RuntimeError):
            ledger.close(JULY)
    assert [one.project for one in ledger.view(JULY).invoices] == ["a"]
    assert [one.project for one in ledger.close(JULY).invoices] == ["a", "b", "c"]
    assert len(ledger.rows(JULY)) == 3


@pytest.mark.parametrize("text", ["2026-13", "2026", "26-07", "2026-7", "2026-07-01", "", "٢٠٢٦-07"])
def test_what_is_no_month_is_no_period(text: str) -> None:
    with pytest.raises(UserError, match="such as 2026-07"):
        Period.parse(text)
