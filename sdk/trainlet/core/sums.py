"""What rows of the billing ledger add up to, and the bytes that stand for them in digests.

Whoever reads the ledger, the API or an export, computes the same numbers here, so any two can be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from trainlet.core.bills import Row
from trainlet.core.models import canonical_json


def line(row: Row) -> bytes:
    """Return the one byte string that stands for a row, in digests and snapshots."""
    return canonical_json(row.data()) + b"\n"


class Sums:
    """What a stream of rows adds up to."""

    def __init__(self) -> None:
        self.rows = self.seconds = self.cost_nano = self.list_nano = 0
        self.unpriced: set[str] = set()
        self._digest = hashlib.sha256()

    def add(self, row: Row) -> Row:
        """Count a row, and return it."""
        self._count(row)
        return row

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Count rows as they pass."""
        for row in rows:
            yield self.add(row)

    def lines(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Count rows as they pass, and yield their lines."""
        for row in rows:
            yield self._count(row)

    def _count(self, row: Row) -> bytes:
        self.rows += 1
        self.seconds += row.seconds
        self.cost_nano += row.cost_nano or 0
        self.list_nano += row.list_cost_nano or 0
        if row.unpriced:
            self.unpriced.add(row.sku)
        text = line(row)
        self._digest.update(text)
        return text

    @property
    def digest(self) -> str:
        """Return the sha256 of all rows so far."""
        return self._digest.hexdigest()
