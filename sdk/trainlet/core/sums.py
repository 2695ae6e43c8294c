"""What rows of the billing ledger add up to, and the bytes that stand for them in digests.

Whoever reads the ledger, the API or an export, computes the same numbers here, so any two can be compared.
"""

from __future__ import annotations

import functools
import hashlib
import json.encoder
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from trainlet.core.bills import FIELDS, Row
from trainlet.core.models import canonical_json

# Most rows of a ledger differ from many others in these only.
OWN = (
    "corrects", "cost_nano", "device", "end_s", "epoch", "function", "id", "lease", "list_cost_nano", "run_id", "start_s",
    "tags", "task",
)  # fmt: skip
_SHARED = tuple(sorted(FIELDS - set(OWN)))
_own, shared_of = (operator.itemgetter(*map(Row._fields.index, names)) for names in (OWN, _SHARED))
quoted = json.encoder.encode_basestring
"""Return a text as it stands in canonical JSON."""
_AT_ONCE = 256  # lines of more are no longer in the processor's cache when they are hashed


def line(row: Row) -> bytes:
    """Return the one byte string that stands for a row, in digests and snapshots: `canonical_json` of its data."""
    return _line(row).encode()


@functools.lru_cache(maxsize=4096)
def between(shared: tuple[Any, ...]) -> tuple[str, ...]:
    """Return what stands before, between and after the values of `OWN` in the line of each row that shares the others."""
    known = dict(zip(_SHARED, shared, strict=True))
    runs, run = [], "{"
    for number, name in enumerate(sorted(FIELDS)):
        run += f'{"," if number else ""}"{name}":'
        if name in known:
            run += canonical_json(known[name]).decode()
        else:
            runs.append(run)
            run = ""
    return (*runs, run + "}\n")


@functools.lru_cache(maxsize=4096)
def _template(shared: tuple[Any, ...]) -> str:
    return "%s".join(run.replace("%", "%%") for run in between(shared))


@functools.lru_cache(maxsize=4096)
def tags_text(items: tuple[tuple[str, str], ...]) -> str:
    """Return tags as they stand in a line."""
    return canonical_json(dict(items)).decode()


def _line(row: Row) -> str:
    corrects, cost, device, end, epoch, function, id, lease, listed, run_id, start, tags, task = _own(row)
    return _template(shared_of(row)) % (
        quoted(corrects) if corrects else '""',
        "null" if cost is None else cost,
        quoted(device),
        end,
        epoch,
        quoted(function),
        quoted(id),
        quoted(lease),
        "null" if listed is None else listed,
        quoted(run_id),
        start,
        tags_text(tuple(tags.items())) if tags else "{}",
        quoted(task),
    )


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

    def add_all(self, rows: Sequence[Row]) -> None:
        """Count rows that follow each other."""
        self.rows += len(rows)
        self.seconds += sum([row.seconds for row in rows])
        self.cost_nano += sum([row.cost_nano or 0 for row in rows])
        self.list_nano += sum([row.list_cost_nano or 0 for row in rows])
        self.unpriced.update([row.sku for row in rows if row.unpriced])
        for text in _joined(rows):
            self._digest.update(text)

    def add_summed(
        self, rows: int, seconds: int, cost_nano: int, list_nano: int, unpriced: Iterable[str], lines: memoryview
    ) -> None:
        """Count rows that the caller has summed up by columns; `lines` are what stands for them."""
        self.rows += rows
        self.seconds += seconds
        self.cost_nano += cost_nano
        self.list_nano += list_nano
        self.unpriced.update(unpriced)
        self._digest.update(lines)

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


def _joined(rows: Sequence[Row]) -> Iterator[bytes]:
    for start in range(0, len(rows), _AT_ONCE):
        yield "".join(map(_line, rows[start : start + _AT_ONCE])).encode()
