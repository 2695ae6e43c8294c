"""Verifying reads an export again and names every difference: to its manifest, to FOCUS, and to the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.bills import EVERY_PROJECT, Snapshot
from trainlet.core.errors import UserError
from trainlet_functions.exports import columns, reading, verifying

pytest.importorskip("pyarrow")


def now(state: str = "closed", **fields: Any) -> Snapshot:
    """Return what the ledger says of the period today."""
    known = {"period": "2026-07", "state": state, "scope": EVERY_PROJECT, "currency": "USD", "digest": "d" * 64}
    return Snapshot.model_validate({**known, "as_of": "2026-09-01T00:00:00.000Z", **fields})


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "exports")


@pytest.fixture
def written(store: DirectoryStore, export: Any, rows: Any) -> Any:
    return export(store, rows)


def change(store: DirectoryStore, written: Any, kind: str, edit: Callable[[bytes], bytes]) -> None:
    """Change the file of an export, as somebody would who may write there."""
    (name,) = [part.name for part in written.manifest.parts if part.format == kind]
    path = store.local_path(f"{written.folder}/{name}")
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(edit(path.read_bytes()))


@pytest.mark.parametrize("version", columns.VERSIONS)
def test_an_export_of_the_ledger_differs_in_nothing(store, export, rows, version) -> None:
    report = verifying.verify(store, export(store, rows, version=version).folder, (now(), rows))
    assert report.ok and report.ledger is not None and report.rules > 150


def test_the_order_of_the_ledger_does_not_matter(store, written, rows) -> None:
    assert verifying.verify(store, written.folder, (now(), rows[::-1])).ok


def test_one_nano_unit_is_a_difference_and_is_named(store, written, rows) -> None:
    ledger = [rows[0]._replace(cost_nano=rows[0].cost_nano + 1), *rows[1:]]
    report = verifying.verify(store, written.folder, (now(), ledger))
    assert not report.ok
    assert report.ledger.shown == [f"{rows[0].id}: cost_nano is 3600000001 in the ledger and 3600000000 in the export"]


def test_charges_that_are_on_one_side_only_are_named(store, written, rows, make) -> None:
    report = verifying.verify(store, written.folder, (now(), [*rows[1:], make(9)]))
    assert report.ledger.shown == [
        f"{make(9).id} is in the ledger (3600000000 nano-USD) and not in the export",
        f"{rows[0].id} is in the export (3600000000 nano-USD) and not in the ledger",
    ]


def test_a_period_that_has_another_digest_or_is_open_is_a_difference(store, written, rows) -> None:
    assert verifying.verify(store, written.folder, (now(digest="e" * 64), rows)).ledger.count == 1
    (said,) = verifying.verify(store, written.folder, (now("open", digest=None), rows)).ledger.shown
    assert "the export says that 2026-07 is closed" in said


def test_an_open_period_may_have_gone_on(store, export, rows, make) -> None:
    early = export(store, rows[:2], "open", digest=None)
    report = verifying.verify(store, early.folder, (now("open", digest=None), rows))
    assert report.ok and report.since.count == 6


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_missing_file_is_named(store, written, rows, kind) -> None:
    (name,) = [part.name for part in written.manifest.parts if part.format == kind]
    store.delete(f"{written.folder}/{name}")
    report = verifying.verify(store, written.folder, (now(), rows))
    assert f"{name} is missing" in report.files.shown


def test_a_changed_digit_is_found_by_hash_sum_and_meaning(store, written) -> None:
    change(store, written, "csv", lambda data: data.replace(b",3.600000000,", b",3.600000001,", 1))
    said = "\n".join(verifying.verify(store, written.folder).files.shown)
    assert "has the sha256" in said
    assert "for the billed sum in nano-units" in said
    assert "ContractedCost of vision/lease-0" in said


def test_a_changed_word_is_found_by_the_rules_too(store, written) -> None:
    change(store, written, "csv", lambda data: data.replace(b'"Usage"', b'"usage"', 1))
    report = verifying.verify(store, written.folder)
    assert any(finding.rule == "ChargeCategory-C-003" for finding in report.focus)
    assert any("from the ledger follows 'Usage'" in line for line in report.files.shown)


def test_charges_that_are_no_ledger_are_said_to_be_none(store, written) -> None:
    change(store, written, "csv", lambda data: data.replace(b"2026-07-01T00:00:00Z", b"yesterday", 2))
    report = verifying.verify(store, written.folder)
    assert any("is no row of a trainlet ledger" in line for line in report.files.shown)


def test_a_file_that_is_no_parquet_is_named(store, written) -> None:
    change(store, written, "parquet", lambda data: b"PAR1" + data[4:-9] + b"nonsense!")
    report = verifying.verify(store, written.folder)
    assert any("cannot be read" in line for line in report.files.shown)


def test_a_manifest_that_lies_is_caught_by_its_sums(store, written) -> None:
    path = store.local_path(f"{written.folder}/manifest.json")
    path.chmod(0o644)
    path.write_text(json.dumps({**json.loads(path.read_text()), "billed_nano": 1, "rows": 7}))
    said = verifying.verify(store, written.folder).files.shown
    assert (
        f"csv: the manifest says 1 and the files {written.manifest.billed_nano} for the billed sum in nano-units"
        in said
    )
    assert "parquet: the manifest says 7 and the files 8 for charges" in said


def test_what_is_no_manifest_is_refused_in_words(store, written) -> None:
    path = store.local_path(f"{written.folder}/manifest.json")
    path.chmod(0o644)
    path.write_text("{}")
    with pytest.raises(UserError, match="is no manifest of a billing export"):
        verifying.verify(store, written.folder)


def test_exports_are_found_wherever_they_are(store, export, rows, written) -> None:
    other = export(store, rows, version="1.4")
    assert reading.folders(store) == [written.folder, other.folder]
    inside = DirectoryStore(store.local_path(written.folder + "/manifest.json").parent)
    assert reading.folders(inside) == [""]
    assert verifying.verify(inside, "").ok
