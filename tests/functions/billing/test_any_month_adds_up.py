"""Whatever is used, found late and priced anew: closed months stay as they are, and all months add up to today's truth."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.core.bills import Period, Row
from trainlet_functions.billing import reports, rows

JULY, AUGUST, SEPTEMBER = Period(2026, 7), Period(2026, 8), Period(2026, 9)
MINOR = {"USD": 10**7, "JPY": 10**9, "KWD": 10**6}
PROJECTS = ("speech", "vision")


USES = st.lists(
    st.tuples(
        st.sampled_from(PROJECTS),
        st.integers(0, 2),  # the device: leases of it end one another
        st.integers(JULY.start_s, JULY.end_s + 20 * 86_400),
        st.integers(0, 20_000),
        st.sampled_from((0, 0, 30_000, 90_000)),  # how much longer it turns out to have been
        st.sampled_from((5040, 2520, 719)),
    ),
    min_size=1,
    max_size=5,
)
PRICES = st.lists(
    st.tuples(st.integers(JULY.start_s, AUGUST.end_s - 1), st.integers(0, 9999)),
    max_size=2,
    unique_by=lambda one: one[0],
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(uses=USES, late=USES, prices=PRICES)
def test_I8_closed_months_never_change_and_all_of_them_add_up_to_the_rating_of_today(
    new_ledger: Any, price: Any, uses: Any, late: Any, prices: Any
) -> None:
    ledger = new_ledger()
    ledger.use("vision", "always", JULY.start_s, 100)  # what was never used is not closed
    use(ledger, "first", uses)
    ledger.at(AUGUST.start_s + 30 * 86_400)
    july = close(ledger, JULY)
    extend(ledger, "first", uses)
    use(ledger, "late", late)
    for number, (from_s, cents) in enumerate(prices):
        ledger.price(price(f"p{number}", from_s, L4=f"{cents}.77"))
    ledger.at(SEPTEMBER.start_s + 1)
    august = close(ledger, AUGUST)
    extend(ledger, "late", late)
    assert (ledger.view(JULY), ledger.rows(JULY)) == july
    assert (ledger.view(AUGUST), ledger.rows(AUGUST)) == august
    booked = [row for period in (JULY, AUGUST, SEPTEMBER) for row in ledger.rows(period) if row.kind != "rounding"]
    for project in PROJECTS:
        mine = [row for row in booked if row.project == project]
        with ledger.database.read() as tx:
            truth = reports.usage(tx, project).rows
        assert sum(row.seconds for row in mine) == sum(row.seconds for row in truth)
        assert sum(row.cost_nano or 0 for row in mine) == sum(row.cost_nano or 0 for row in truth)


def use(ledger: Any, name: str, uses: Any) -> None:
    for number, (project, device, begin_s, held_s, _, share) in enumerate(uses):
        fields = {"uuid": f"GPU-{device}", "share": share}
        ledger.use(project, f"{name}{number}", begin_s, held_s, "heartbeat", **fields)


def extend(ledger: Any, name: str, uses: Any) -> None:
    for number, (project, device, begin_s, held_s, more_s, share) in enumerate(uses):
        if more_s:
            fields = {"uuid": f"GPU-{device}", "share": share, "seq": 2}
            ledger.use(project, f"{name}{number}", begin_s, held_s + more_s, "heartbeat", **fields)


def close(ledger: Any, period: Period) -> tuple[Any, list[Row]]:
    ledger.close(period)
    return ledger.view(period), ledger.rows(period)


@given(metered_nano=st.integers(-(10**18), 10**18), currency=st.sampled_from(sorted(MINOR)))
def test_I6_an_invoice_has_at_most_one_rounding_and_it_is_half_a_minor_unit_at_most(
    metered_nano: int, currency: str
) -> None:
    row = rows.rounding("p", JULY, "invoice", metered_nano, currency)
    rounded = 0 if row is None else row.cost_nano
    assert rounded is not None and 2 * abs(rounded) <= MINOR[currency]
    assert (metered_nano + rounded) % MINOR[currency] == 0
    assert (row is None) == (metered_nano % MINOR[currency] == 0)
