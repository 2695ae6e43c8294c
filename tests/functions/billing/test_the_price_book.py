"""The price book only grows: what was applied is never changed, and what is past is changed only when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainlet.core.clocks import ManualClock
from trainlet.core.errors import UserError
from trainlet_functions.billing import book, pricefiles
from trainlet_functions.billing.prices import PriceList
from trainlet_functions.state.database import Database


def listed(name: str, day: str, hour: str, currency: str = "USD") -> PriceList:
    head = f"version: {name}\ncurrency: {currency}\neffective_from: {day}T00:00:00Z\n"
    return pricefiles.parse(head + f'per_gpu_hour: {{L4: "{hour}"}}', "test.yaml")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return a database in 2026 whose book holds one version."""
    seed = listed("v1", "2025-01-01", "3.60")
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", ManualClock(), prices=seed)
    database.migrate()
    with database.write() as tx:
        book.settle(tx, "test")
    yield database
    database.close()


def test_a_new_version_is_shown_then_added_once(database: Database) -> None:
    given = listed("v2", "2027-01-01", "7.20")
    with database.read() as tx:
        (change,) = book.difference(tx, given).versions
    assert change.changes == ["per_gpu_hour L4: 3.60 -> 7.20"]
    with database.write() as tx:
        assert len(book.apply(tx, given, "test").versions) == 1
        assert book.apply(tx, given, "test").versions == []
    with database.read() as tx:
        assert [version.version for version in tx.prices.versions] == ["v1", "v2"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("v1", "2025-01-01", "9"), "per_gpu_hour.*never changed"),
        (("v2", "2025-01-01", "9"), "overlap"),
        (("v2", "2025-06-01", "9"), "in the past"),
        (("v2", "2027-01-01", "9", "EUR"), "currency"),
    ],
)
def test_what_would_change_the_past_is_refused(database: Database, given: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said), database.write() as tx:
        book.apply(tx, listed(*given), "test")
    with database.read() as tx:
        assert [version.version for version in tx.prices.versions] == ["v1"]


def test_the_past_can_be_asked_for(database: Database) -> None:
    with database.write() as tx:
        book.apply(tx, listed("v2", "2025-06-01", "9"), "test", retroactive=True)
        assert len(tx.prices.versions) == 2
