"""An export holds every charge to the nano, says so in its manifest, and is never written over."""

from __future__ import annotations

import csv
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.errors import ConflictError, UserError
from trainlet_functions.exports import columns, frames

pytest.importorskip("pyarrow")


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "exports")


def files(store: DirectoryStore, written: Any, kind: str) -> list[Path]:
    """Return the files of an export in one format."""
    names = [part.name for part in written.manifest.parts if part.format == kind]
    return [path for name in names if (path := store.local_path(f"{written.folder}/{name}")) is not None]


@pytest.mark.parametrize("version", columns.VERSIONS)
def test_parquet_and_csv_hold_the_same_charges_to_the_last_digit(store, export, rows, version) -> None:
    from pyarrow import parquet

    written = export(store, rows, version=version)
    (as_parquet,), (as_csv,) = files(store, written, "parquet"), files(store, written, "csv")
    table = parquet.read_table(as_parquet)
    assert [field.name for field in table.schema] == [column.name for column in columns.exported(version)]
    assert str(table.schema.field("BilledCost").type) == "decimal128(38, 9)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[ms, tz=UTC]"
    with as_csv.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == table.column_names
    for charge, line, row in zip(table.to_pylist(), lines, rows, strict=True):
        assert charge["BilledCost"] == Decimal(line["BilledCost"]) == Decimal(row.cost_nano or 0).scaleb(-9)
        assert charge["ChargePeriodStart"].strftime("%Y-%m-%dT%H:%M:%SZ") == line["ChargePeriodStart"]
        assert (charge["Tags"] or "") == line["Tags"]
    assert json.loads(lines[0]["Tags"]) == rows[0].tags
    assert lines[0]["BilledCost"] == "3.600000000"
    assert lines[5]["BilledCost"] == "-3.600000000"


def test_the_manifest_says_what_the_files_hold(store, export, rows) -> None:
    written = export(store, rows)
    made = written.manifest
    assert made.billed_nano == sum(row.cost_nano or 0 for row in rows)
    assert [one.billed_nano for one in made.invoices] == [made.billed_nano]
    assert made.seconds == sum(row.seconds for row in rows)
    assert made.unpriced_skus == ("Abacus-9",)
    assert not made.provisional and made.high_water == "2026-08-01T09:00:00.000Z"
    for part in made.parts:
        data = store.get(f"{written.folder}/{part.name}")
        assert part.name == f"part-{part.sha256}.{part.format}"
        assert (len(data), hashlib.sha256(data).hexdigest()) == (part.size_bytes, part.sha256)
    schema = json.loads(store.get(f"{written.folder}/{made.schema_file}"))
    assert schema["SchemaId"] == made.schema_id and schema["FocusVersion"] == "1.2"
    assert len(schema["ColumnDefinition"]) == 57 + len(columns.OWN)


def test_the_same_export_again_changes_nothing(store, export, rows) -> None:
    first, before = export(store, rows), sorted(store.list(""), key=lambda one: one.key)
    again = export(store, rows)
    assert first.new and not again.new and again.manifest == first.manifest
    assert sorted(store.list(""), key=lambda one: one.key) == before


def test_another_export_of_a_closed_period_is_refused_by_name(store, export, rows) -> None:
    first = export(store, rows)
    with pytest.raises(ConflictError, match="billed_nano was") as refused:
        export(store, rows[:-1])
    assert "rows was 8 and is 7" in str(refused.value)
    assert json.loads(store.get(f"{first.folder}/manifest.json"))["rows"] == 8


def test_an_open_period_is_exported_as_often_as_one_likes_and_says_so(store, export, rows) -> None:
    first = export(store, rows[:3], "open", digest=None)
    second = export(store, rows[:4], "open", digest=None, as_of="2026-07-20T00:00:00.000Z")
    assert first.folder != second.folder
    assert first.manifest.provisional and second.manifest.provisional
    assert export(store, rows).manifest.provisional is False


def test_an_export_that_was_cut_off_has_no_manifest_and_is_written_again(store, export, rows, monkeypatch) -> None:
    whole = DirectoryStore.create

    def create(self: Any, key: str, data: bytes) -> None:
        if key.endswith("manifest.json"):
            raise KeyboardInterrupt
        whole(self, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "create", create)
        with pytest.raises(KeyboardInterrupt):
            export(store, rows)
    assert not [one for one in store.list("") if one.key.endswith("manifest.json")]
    assert export(store, rows).new


def test_a_month_without_usage_is_an_export_without_charges(store, export) -> None:
    written = export(store, [])
    assert [part.rows for part in written.manifest.parts] == [0, 0]


def test_many_charges_are_several_files_in_their_order(store, export, make, monkeypatch) -> None:
    from pyarrow import parquet

    from trainlet_functions.exports import writing

    monkeypatch.setattr(writing, "BATCH_ROWS", 3)
    monkeypatch.setattr(writing, "PART_ROWS", 6)
    given = [make(number) for number in range(20)]
    written = export(store, given)
    found = [
        name for path in files(store, written, "parquet") for name in parquet.read_table(path)["x_ChargeId"].to_pylist()
    ]
    assert found == [row.id for row in given]
    assert [part.rows for part in written.manifest.parts if part.format == "csv"] == [6, 6, 6, 2]


def test_a_version_of_focus_that_is_not_written_is_named() -> None:
    with pytest.raises(UserError, match=r"--focus 1.3: .*1\.2"):
        columns.focus("1.3")


def test_without_pyarrow_the_message_says_what_to_install(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"install trainlet\[billing\]"):
        frames.arrow()
