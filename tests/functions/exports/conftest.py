"""A month that tests bill, as rows that the API would send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trainlet.core.bills import EVERY_PROJECT, Period, Row, Snapshot

JULY = Period(2026, 7)
HOUR = 3600


def charge(number: int, **fields: Any) -> Row:
    """Return one hour of an L4 at 0.001 USD per second, with other fields where they are given."""
    start = JULY.start_s + number * HOUR
    known = {
        "id": f"vision/lease-{number}/{start}+{HOUR}",
        "project": "vision",
        "period": "2026-07",
        "kind": "usage",
        "start_s": start,
        "end_s": start + HOUR,
        "currency": "USD",
        "cost_nano": HOUR * 10**6,
        "list_cost_nano": HOUR * 10**6,
        "lease": f"lease-{number}",
        "run_id": f"run-{number}",
        "task": f"run-{number}.train",
        "epoch": 1,
        "function": "train",
        "device": "GPU-0",
        "sku": "L4",
        "phase": "run",
        "version": "v1",
        "price_nano": 10**6,
        "list_price_nano": 10**6,
    }
    return Row(**{**known, **fields})


def month() -> list[Row]:
    """Return rows of every kind."""
    part = {"share": 1680, "part": 0, "cost_nano": 1_200_000_000, "list_cost_nano": 1_200_000_000}
    back = {
        "start_s": JULY.start_s - HOUR,
        "end_s": JULY.start_s,
        "corrects": "vision/old",
        "corrected_period": "2026-06",
    }
    return [
        charge(0, tags={"team": 'vi"sion,\nx', "nothing": ""}),
        charge(1, rate="spot", virtual=True),
        charge(2, sku="H100-80GB/1g.10gb", **part),
        charge(3, sku="Abacus-9", price_nano=None, list_price_nano=None, cost_nano=None, list_cost_nano=None),
        charge(4, phase="lost", price_nano=0, cost_nano=0, list_cost_nano=0, list_price_nano=0),
        charge(5, kind="reversal", cost_nano=-HOUR * 10**6, list_cost_nano=-HOUR * 10**6, **back),
        charge(6, kind="correction", price_nano=500_001, cost_nano=HOUR * 500_001, **back),
        Row(
            id="INV-2026-07-vision/rounding",
            project="vision",
            period="2026-07",
            kind="rounding",
            start_s=JULY.start_s,
            end_s=JULY.end_s,
            currency="USD",
            cost_nano=-1_603_600,
            list_cost_nano=-1_603_600,
        ),
    ]


def snapshot(state: str = "closed", **fields: Any) -> Snapshot:
    """Return what those rows are of."""
    known = {"period": "2026-07", "state": state, "scope": EVERY_PROJECT, "currency": "USD", "digest": "d" * 64}
    return Snapshot.model_validate({**known, "as_of": "2026-08-01T09:00:00.000Z", **fields})


@pytest.fixture
def rows() -> list[Row]:
    """Return rows of every kind."""
    return month()


@pytest.fixture
def make() -> Callable[..., Row]:
    """Return what makes rows."""
    return charge


@pytest.fixture
def export() -> Callable[..., Any]:
    """Return what writes rows into a store."""
    from trainlet_functions.exports import writing

    def write(store: Any, rows: Sequence[Row], state: str = "closed", version: str = "1.2", **fields: Any) -> Any:
        given = snapshot(state, **fields)
        return writing.write(store, given, rows, version=version, created_at="2026-08-02T00:00:00Z", generator="test")

    return write
