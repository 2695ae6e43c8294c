"""What people read: rows that say what they are and sums that are the rows' sums."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.state.database import Database

ANCHOR_S = 1_767_225_600


def price(name: str, from_s: int, hour: str) -> PriceVersion:
    start = datetime.fromtimestamp(from_s, UTC)
    return PriceVersion(version=name, currency="USD", effective_from=start, per_gpu_hour={"L4": Decimal(hour)})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a database whose price doubles 10 seconds into the lease."""
    prices = PriceList(versions=(price("v1", ANCHOR_S - 500, "3.60"), price("v2", ANCHOR_S + 10, "7.20")))
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", ManualClock(ANCHOR_S * 10**9), prices=prices)
    database.migrate()
    yield database
    database.close()


def lease(index: int, device: Device, held_s: float, kind: str = "heartbeat") -> LeaseEvent:
    name = f"run.train.1.{index}"
    fields = {
        "id": f"{name}:1",
        "kind": kind,
        "lease": name,
        "seq": 1,
        "task": "run.train",
        "epoch": 1,
        "run_id": "run",
    }
    times = {"anchor_ns": ANCHOR_S * 10**9, "elapsed_ns": round(held_s * 1e9)}
    phases = (("setup", 0), ("run", 2_000_000_000))
    return LeaseEvent.model_validate({**fields, **times, "phases": phases, "function": "train", "device": device})


def test_an_open_lease_is_billed_to_its_last_heartbeat_and_cut_at_phase_and_price(database: Database) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [lease(0, Device(uuid="GPU-0", sku="L4"), 25.9)])
        report = reports.usage(tx, "default", run_id="run")
    assert [(row.phase, row.seconds, row.cost_nano, row.open) for row in report.rows] == [
        ("setup", 2, 2_000_000, True),
        ("run", 8, 8_000_000, True),
        ("run", 15, 30_000_000, True),
    ]
    assert (report.gpu_seconds, report.cost_nano, report.price_version) == (25, 40_000_000, "v1, v2")
    assert not report.virtual


def test_a_virtual_device_is_priced_as_what_it_stands_for_and_says_so(database: Database) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [lease(0, Device(uuid="virtual-0", sku="L4", virtual=True), 5, "close")])
        report = reports.usage(tx, "default")
    assert report.virtual
    assert [(row.virtual, row.sku, row.open) for row in report.rows] == [(True, "L4", False)] * 2
    assert report.cost_nano == 5_000_000


def test_a_sku_without_a_price_keeps_its_usage_and_is_reported(database: Database) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [lease(0, Device(uuid="GPU-0", sku="Abacus-9"), 5)])
        metering.ingest(tx, "default", [lease(1, Device(uuid="GPU-1", sku="L4"), 5)])
        report = reports.usage(tx, "default")
    assert report.unpriced_skus == ["Abacus-9"]
    assert (report.gpu_seconds, report.cost_nano) == (10, 5_000_000)
    assert [row.cost_nano for row in report.rows if row.sku == "Abacus-9"] == [None, None]


def test_nothing_used_is_an_empty_report(database: Database) -> None:
    with database.read() as tx:
        report = reports.usage(tx, "default", run_id="nobody")
    assert (report.rows, report.gpu_seconds, report.cost_nano, report.unpriced_skus) == ([], 0, 0, [])
