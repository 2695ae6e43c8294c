"""Verify an export: its files against its manifest, its charges against FOCUS, and both against the ledger, to the nano.

The charges are turned back into rows of the ledger, and from those every other column is made anew: what an export says
beside the ledger must follow from it. Every difference is named; nothing is counted as close enough.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from trainlet.core.bills import Period, Row, Snapshot, invoice_id
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.sums import Sums
from trainlet_functions.exports import charges, columns, reading
from trainlet_functions.exports.checking import Checker, Finding
from trainlet_functions.exports.manifests import Manifest

MOST = 20


@dataclass(slots=True)
class Differences:
    """Sentences, each about one difference; beyond the first ones they are only counted."""

    shown: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Note a difference."""
        self.count += 1
        if len(self.shown) < MOST:
            self.shown.append(text)


@dataclass(slots=True)
class Report:
    """What was found about one export. `ledger` is None where it was not compared, `since` what the ledger did after it."""

    folder: str
    manifest: Manifest
    rules: int = 0
    files: Differences = field(default_factory=Differences)
    focus: list[Finding] = field(default_factory=list)
    ledger: Differences | None = None
    since: Differences = field(default_factory=Differences)

    @property
    def ok(self) -> bool:
        """Say whether nothing at all was found."""
        return not self.files.count and not self.focus and not (self.ledger and self.ledger.count)


def verify(
    store: ObjectStore,
    folder: str,
    ledger: tuple[Snapshot, Iterable[Row]] | None = None,
    made: Manifest | None = None,
) -> Report:
    """Verify one export, against a snapshot of the ledger of the same period and scope too, where it is given.

    `made` is its manifest, where it was read already.
    """
    made = made or reading.manifest(store, folder)
    report = Report(folder, made)
    with tempfile.TemporaryDirectory(prefix="trainlet-verify-") as place:
        for kind in ("parquet", "csv"):
            with_ledger = ledger[1] if ledger is not None and kind == "parquet" else None
            _file_kind(store, report, Path(place), kind, with_ledger)
    if ledger is not None:
        _snapshot(report, ledger[0])
    return report


def _file_kind(store: ObjectStore, report: Report, place: Path, kind: str, ledger: Iterable[Row] | None) -> None:
    made, sums = report.manifest, Sums()
    invoices: dict[str, int] = {}
    checker = Checker(made.focus_version)
    report.rules = len(checker.rules)

    def rows() -> Iterator[Row]:
        for row in sums.through(_charges(store, report, place, kind, checker)):
            name = invoice_id(row.project, row.period)
            invoices[name] = invoices.get(name, 0) + (row.cost_nano or 0)
            yield row

    try:
        if ledger is None:
            for _ in rows():
                pass
        else:
            report.ledger = report.ledger or Differences()
            notes = report.since if made.provisional else report.ledger
            compare(rows(), ledger, notes)
    except UserError as error:
        report.files.add(f"{kind}: {error}")
        return
    finally:
        report.focus += [one for one in checker.findings if str(one) not in map(str, report.focus)]
    promised = {one.id: one.billed_nano for one in made.invoices}
    for what, said, found in (
        ("charges", made.rows, sums.rows),
        ("device-seconds", made.seconds, sums.seconds),
        ("the billed sum in nano-units", made.billed_nano, sums.cost_nano),
        ("the list sum in nano-units", made.list_nano, sums.list_nano),
        ("the digest of the rows", made.rows_digest, sums.digest),
        *((f"invoice {id}", promised.get(id), invoices.get(id)) for id in sorted(promised.keys() | invoices.keys())),
    ):
        if said != found:
            report.files.add(f"{kind}: the manifest says {said} and the files {found} for {what}")


def _charges(store: ObjectStore, report: Report, place: Path, kind: str, checker: Checker) -> Iterator[Row]:
    made, period = report.manifest, Period.parse(report.manifest.period)
    for part in (one for one in made.parts if one.format == kind):
        path = place / part.name
        wrong = reading.fetch(store, report.folder, part, path)
        if wrong is not None:
            report.files.add(f"{part.name} {wrong}")
        if not path.exists():
            continue
        count = 0
        for found, number in reading.batches(path, kind, made.focus_version):
            if not count:
                checker.names(list(found))
            count += number
            checker.charges(found, number)
            together = list(reading.rows(found, number))
            _derived(report, kind, found, together, period)
            yield from together
        path.unlink()
        if count != part.rows:
            report.files.add(f"{part.name} has {count} charges, and the manifest says {part.rows}")


def _derived(report: Report, kind: str, found: reading.Columns, rows: list[Row], period: Period) -> None:
    made = report.manifest
    wanted = charges.values(rows, period, made.parties)
    for column in columns.exported(made.focus_version):
        should: list[Any] = wanted.get(column.name, [None] * len(rows))
        has = found.get(column.name, [None] * len(rows))
        if should == has:
            continue
        for row, one, other in zip(rows, should, has, strict=True):
            if one != other:
                report.files.add(f"{kind}: {column.name} of {row.id} is {other!r}; from the ledger follows {one!r}")


def compare(export: Iterable[Row], ledger: Iterable[Row], into: Differences) -> None:
    """Name every difference between the rows of an export and those of the ledger, in whatever order they come."""
    ours: dict[str, Row] = {}
    theirs: dict[str, Row] = {}
    for mine, its in zip_longest(export, ledger):
        if mine is not None and its is not None and mine.id == its.id:
            _row(mine, its, into)
            continue
        for row, here, there in ((mine, ours, theirs), (its, theirs, ours)):
            if row is None:
                continue
            if row.id in there:
                other = there.pop(row.id)
                _row(row if here is ours else other, other if here is ours else row, into)
            else:
                here[row.id] = row
    for row in theirs.values():
        into.add(f"{row.id} is in the ledger ({_money(row)}) and not in the export")
    for row in ours.values():
        into.add(f"{row.id} is in the export ({_money(row)}) and not in the ledger")


def _row(mine: Row, its: Row, into: Differences) -> None:
    if mine != its:
        ours, theirs = mine.data(), its.data()
        for name in theirs:
            if ours[name] != theirs[name]:
                into.add(f"{mine.id}: {name} is {theirs[name]!r} in the ledger and {ours[name]!r} in the export")


def _money(row: Row) -> str:
    return "no price" if row.cost_nano is None else f"{row.cost_nano} nano-{row.currency}"


def _snapshot(report: Report, snapshot: Snapshot) -> None:
    made = report.manifest
    differences = report.ledger = report.ledger or Differences()
    if made.provisional:
        if snapshot.state != made.state:
            report.since.add(f"period {made.period} is {snapshot.state} now")
        return
    if snapshot.state != "closed":
        differences.add(f"the export says that {made.period} is closed, and the ledger that it is {snapshot.state}")
    elif snapshot.digest != made.period_digest:
        differences.add(f"the digest of {made.period} is {snapshot.digest} in the ledger and {made.period_digest} here")
    if snapshot.currency != made.currency:
        differences.add(f"the currency is {snapshot.currency} in the ledger and {made.currency} here")
