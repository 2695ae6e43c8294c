"""A ledger that tests fill in one-line sentences, on each database; time moves only by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from trainlet.core.bills import EVERY_PROJECT, Period, PeriodView, Row
from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import book, closing, snapshots
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.state.database import Database

JULY, AUGUST = Period(2026, 7), Period(2026, 8)


def version(name: str, from_s: int, **hours: str) -> PriceVersion:
    """Return a price version: `version("v1", 0, L4="3.60")`."""
    start = datetime.fromtimestamp(from_s, UTC)
    per_hour = {sku.replace("_", "-"): Decimal(hour) for sku, hour in hours.items()}
    return PriceVersion(version=name, currency="USD", effective_from=start, per_gpu_hour=per_hour)


class Ledger:
    """A platform's ledger, and those who use and read it."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(JULY.start_s * 10**9)
        seed = PriceList(versions=(version("v1", JULY.start_s - 10**7, L4="3.60"),))
        self.database = Database(url, self.clock, prices=seed)
        self.database.migrate()
        with self.database.write() as tx:
            book.settle(tx, "test")

    def at(self, second: int) -> None:
        """Let it be a time."""
        self.clock.advance(second - self.clock.wall_ns() / 1e9)

    def event(self, lease: str, begin_s: float, held_s: float, kind: str = "close", **fields: Any) -> LeaseEvent:
        """Return a lease event."""
        device = Device(uuid=fields.pop("uuid", f"GPU-{lease}"), sku=fields.pop("sku", "L4"))
        known = {"task": f"run-{lease}.train", "epoch": 1, "run_id": f"run-{lease}", "function": "train", "seq": 1}
        times = {"anchor_ns": round(begin_s * 1e9), "elapsed_ns": round(held_s * 1e9)}
        return LeaseEvent.model_validate(
            {
                "id": f"{lease}:{kind}:{held_s}",
                "kind": kind,
                "lease": lease,
                "device": device,
                **times,
                **known,
                **fields,
            }
        )

    def use(self, project: str, lease: str, begin_s: float, held_s: float, kind: str = "close", **fields: Any) -> None:
        """Use a device; afterwards it is at least that late."""
        if begin_s + held_s > self.clock.wall_ns() / 1e9 + 3600:
            self.at(int(begin_s + held_s) + 1)
        with self.database.write() as tx:
            metering.ingest(tx, project, [self.event(lease, begin_s, held_s, kind, **fields)])

    def price(self, *versions: PriceVersion) -> None:
        """Add prices, of the past too."""
        with self.database.write() as tx:
            applied = tx.prices.versions
            book.apply(tx, PriceList(versions=(*applied, *versions)), "test", retroactive=True)

    def close(self, period: Period, **options: Any) -> PeriodView:
        """Close a period."""
        return closing.close(self.database, period, "test", **options)

    def rows(self, period: Period, scope: str = EVERY_PROJECT) -> list[Row]:
        """Read a period."""
        with self.database.read() as tx:
            return list(snapshots.rows(tx, period, scope))

    def view(self, period: Period) -> PeriodView:
        """Look at a period."""
        with self.database.read() as tx:
            return closing.view(tx, period)


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """Return an empty ledger in July 2026, where an L4 costs 0.001 USD per second."""
    ledger = Ledger(database_url)
    yield ledger
    ledger.database.close()


@pytest.fixture
def new_ledger(tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Return what makes empty ledgers like `ledger`, on SQLite, one after the other: for the examples of a property."""
    template = tmp_path / "template.db"
    Ledger(f"sqlite:///{template}").database.close()
    made: list[Ledger] = []

    def make() -> Ledger:
        for one in made:
            one.database.close()
        path = shutil.copy(template, tmp_path / f"{len(made)}.db")
        made.append(Ledger(f"sqlite:///{path}"))
        return made[-1]

    yield make
    for one in made:
        one.database.close()


@pytest.fixture
def price() -> Callable[..., PriceVersion]:
    """Return what makes price versions."""
    return version
