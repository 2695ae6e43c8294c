"""What `tl.billing` tells of a ledger: every second and nano-unit once, in whatever intervals and time zone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet import billing
from trainlet.core import bills
from trainlet.core.errors import UserError

JULY, AUGUST = bills.Period(2026, 7), bills.Period(2026, 8)
NOON = AUGUST.start_s + 12 * 3600
HOUR = 3600


def row(start_s: int, seconds: int = HOUR, nano: int = 10**6, **fields: Any) -> bills.Row:
    """Return usage of an L4."""
    known = {
        "id": f"{start_s}+{seconds}/{fields.get('kind')}", "project": "vision", "period": str(bills.Period.of(start_s)),
        "kind": "usage", "start_s": start_s, "end_s": start_s + seconds, "currency": "USD", "run_id": "run-1",
        "cost_nano": seconds * nano, "list_cost_nano": seconds * nano, "sku": "L4", "function": "train",
        "price_nano": nano, "list_price_nano": nano,
    }  # fmt: skip
    return bills.Row(**{**known, **fields})


class Ledger:
    """Answers as the API does."""

    def __init__(self, *rows: bills.Row) -> None:
        self.rows = rows

    def billing_periods(self, project: str | None) -> list[bills.PeriodView]:
        return [
            bills.PeriodView(period=str(JULY), state="closed", currency="USD"),
            bills.PeriodView(period=str(AUGUST), state="open", currency="USD"),
        ]

    @contextlib.contextmanager
    def billing_rows(self, period: str | None, project: str | None) -> Iterator[tuple[bills.Snapshot, Any]]:
        chosen = period or str(AUGUST)
        state = "closed" if chosen == str(JULY) else "open"
        known = {"period": chosen, "scope": "vision", "currency": "USD", "as_of": "2026-08-01T12:00:00.000Z"}
        snapshot = bills.Snapshot.model_validate({**known, "state": state})
        yield snapshot, iter([one for one in self.rows if one.period == chosen])

    def prices(self) -> dict[str, Any]:
        versions = [("old", 0, 1), ("now", JULY.start_s, 1_097_222), ("next", AUGUST.end_s, 900_000)]
        return {
            "versions": [
                {"version": name, "currency": "USD", "from_s": since, "nano_per_gpu_second": {"L4": nano}}
                for name, since, nano in versions
            ]
        }


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be noon of the first of August 2026."""
    monkeypatch.setattr(billing, "_now_s", lambda: NOON)


def test_a_report_counts_a_correction_where_its_time_was_used() -> None:
    first = row(JULY.start_s + 100)
    back = row(JULY.start_s + 100, kind="reversal", period="2026-08", cost_nano=-3600 * 10**6, corrects=first.id)
    instead = row(JULY.start_s + 100, 1800, kind="correction", period="2026-08")
    (item,) = billing.report(during="last month", client=Ledger(first, back, instead))  # type: ignore[arg-type]
    assert (item.seconds, item.cost, item.interval_start) == (1800, Decimal("1.8"), datetime(2026, 7, 1, tzinfo=UTC))
    assert (item.object_id, item.description, item.cost_by_resource) == ("run-1", "train", {"L4": Decimal("1.8")})


def test_a_day_begins_where_the_reader_lives() -> None:
    late = row(JULY.start_s + 18 * HOUR)  # half an hour before midnight in Kolkata, and half after
    found = billing.report(start="2026-07-01", end="2026-07-03", tz="Asia/Kolkata", client=Ledger(late))  # type: ignore[arg-type]
    assert [(one.interval_start.day, one.seconds, one.cost) for one in found] == [
        (1, 1800, Decimal("1.8")),
        (2, 1800, Decimal("1.8")),
    ]


def test_tags_are_kept_apart_only_where_they_are_asked_for() -> None:
    ledger: Any = Ledger(
        row(JULY.start_s, tags={"team": "a", "x": "1"}), row(JULY.start_s + HOUR, tags={"team": "b", "x": "1"})
    )
    assert [item.tags for item in billing.report(during="2026-07", client=ledger)] == [{}]
    found = billing.report(during="2026-07", tag_names=["team"], client=ledger)
    assert [item.tags for item in found] == [{"team": "a"}, {"team": "b"}]


def test_usage_without_a_price_is_counted_and_said() -> None:
    strange = row(JULY.start_s, sku="Abacus-9", cost_nano=None, price_nano=None, list_cost_nano=None)
    (item,) = billing.report(during="2026-07", client=Ledger(strange))  # type: ignore[arg-type]
    assert (item.cost, item.seconds, item.unpriced_seconds) == (0, HOUR, HOUR)


@given(
    st.lists(st.tuples(st.integers(-2 * HOUR, 40 * 86_400), st.integers(1, HOUR), st.integers(0, 10**7)), max_size=8),
    st.sampled_from(["h", "d", "month"]),
    st.sampled_from(["UTC", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe", "Europe/Berlin"]),
    st.integers(0, 31 * 86_400 - 1),
)
def test_I4_intervals_and_time_zones_neither_lose_nor_double_anything(
    used: list[tuple[int, int, int]], resolution: Any, tz: str, middle: int
) -> None:
    rows = [row(JULY.start_s + at, seconds, nano, id=str(number)) for number, (at, seconds, nano) in enumerate(used)]
    rows = [one for one in rows if one.period == "2026-07"]
    ledger: Any = Ledger(*rows)

    def total(start: int, end: int) -> tuple[int, Decimal]:
        said = [datetime.fromtimestamp(one, UTC).isoformat() for one in (start, end)]
        found = billing.report(start=said[0], end=said[1], resolution=resolution, tz=tz, client=ledger)
        return sum(one.seconds for one in found), sum((one.cost for one in found), Decimal(0))

    cut = JULY.start_s + max(1, middle)
    one, two, whole = total(JULY.start_s, cut), total(cut, NOON), total(JULY.start_s, NOON)
    assert (one[0] + two[0], one[1] + two[1]) == whole
    inside = [max(0, min(one.end_s, NOON) - max(one.start_s, JULY.start_s)) for one in rows]
    assert whole[0] == sum(inside)
    assert whole[1] == billing.money(sum(one.price_nano * held for one, held in zip(rows, inside, strict=True)))


def test_a_summary_is_the_invoice() -> None:
    rounding = row(JULY.start_s, kind="rounding", cost_nano=-600_000, run_id="", sku="", price_nano=None)
    correction = row(JULY.start_s - HOUR, kind="correction", period="2026-07", sku="T4")
    (found,) = billing.summary(period="2026-07", client=Ledger(row(JULY.start_s), correction, rounding))  # type: ignore[arg-type]
    assert found.metered_cost == Decimal("3.6") and found.metered_cost_breakdown == {"L4": Decimal("3.6")}
    assert found.adjustments == {"corrections": Decimal("3.6"), "rounding": Decimal("-0.0006")}
    assert found.billed_cost == found.metered_cost + sum(found.adjustments.values())
    assert (found.state, found.seconds) == ("closed", 2 * HOUR)


def test_rates_are_what_holds_now_and_what_is_to_come() -> None:
    found = billing.rates(client=Ledger())  # type: ignore[arg-type]
    assert [(one.version, one.per_second, one.per_hour) for one in found] == [
        ("now", Decimal("0.001097222"), Decimal("3.949999200")),
        ("next", Decimal("0.0009"), Decimal("3.24")),
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"start": "2026-07-02", "end": "2026-07-01"}, "is reversed: it ends 2026-07-01"),
        ({"start": "2026-07-01", "end": "2026-07-01"}, "is empty"),
        ({"start": "2026-09-01"}, "is in the future: it begins 2026-09-01"),
        ({"during": "2026-09"}, "is in the future"),
        ({"start": "2026-09-02", "end": "2026-09-01"}, "is in the future"),
        ({"during": "last century"}, "no range of time"),
        ({"during": "2026-13"}, "no range of time"),
        ({"during": "today", "start": "2026-07-01"}, "give one of them"),
        ({"end": "2026-07-01"}, "--end needs --start"),
        ({"start": "yesterday"}, "is no time"),
        ({"start": "2026-07-01T00:00:00.5"}, "drop the fraction"),
        ({"during": "today", "tz": "Mars/Olympus"}, "no time zone"),
        ({"during": "today", "resolution": "y"}, "no resolution"),
    ],
)
def test_a_range_that_says_nothing_is_refused_in_words(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        billing.report(client=Ledger(), **asked)  # type: ignore[arg-type]
