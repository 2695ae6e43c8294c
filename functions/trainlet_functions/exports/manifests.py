"""The manifest of an export: what it is of, what is in it, and what it adds up to. It is written last, and once.

A folder without a manifest is an export that was cut off, and nobody reads it. Sums are nano-units as integers.
"""

from __future__ import annotations

import uuid
from typing import Literal

from trainlet.core.bills import PeriodState
from trainlet.core.models import Value, canonical_json
from trainlet_functions.exports.columns import PRECISION, SCALE, exported
from trainlet_functions.exports.parties import Parties

MANIFEST = "manifest.json"
TYPES = {
    "string": "STRING",
    "json": "JSON",
    "decimal": "DECIMAL",
    "time": "DATETIME",
    "integer": "INTEGER",
    "boolean": "BOOLEAN",
}


class Part(Value):
    """A file of charges, named by its sha256."""

    name: str
    format: Literal["parquet", "csv"]
    rows: int
    size_bytes: int
    sha256: str


class InvoiceSum(Value):
    """What the charges of one invoice add up to: the amount payable, where the period is closed."""

    id: str
    rows: int
    billed_nano: int


class Manifest(Value):
    """What an export is. `high_water` is the moment of the ledger that it shows, `rows_digest` the sha256 of its rows.

    While the period is not closed, it is `provisional`: a later export may say otherwise.
    """

    format: Literal["trainlet.billing-export.v1"] = "trainlet.billing-export.v1"
    focus_version: str
    schema_id: str
    schema_file: str
    period: str
    state: PeriodState
    provisional: bool
    scope: str
    currency: str
    high_water: str
    period_digest: str | None
    rows_digest: str
    rows: int
    seconds: int
    billed_nano: int
    list_nano: int
    invoices: tuple[InvoiceSum, ...]
    unpriced_skus: tuple[str, ...]
    parties: Parties
    generator: str
    created_at: str
    parts: tuple[Part, ...]

    def promise(self) -> dict[str, object]:
        """Return what two exports of the same closed period must agree in; files and moments may differ."""
        return self.model_dump(mode="json", exclude={"parts", "created_at", "generator"})


def schema_file(version: str, generator: str) -> tuple[str, bytes]:
    """Return (id, content) of the metadata that FOCUS asks for: which columns there are, and of which types.

    The id is a function of the columns, so that it changes when they do, and only then.
    """
    definitions: list[dict[str, object]] = []
    for column in exported(version):
        one: dict[str, object] = {"ColumnName": column.name, "DataType": TYPES[column.kind]}
        if column.kind == "decimal":
            one |= {"NumericPrecision": PRECISION, "NumberScale": SCALE}
        if column.kind in ("string", "json"):
            one |= {"StringEncoding": "UTF-8"}
        if column.name == "Tags":
            one |= {"ProviderTagPrefixes": ["trainlet:"]}
        definitions.append(one)
    schema_id = str(uuid.uuid5(uuid.NAMESPACE_URL, canonical_json([version, definitions]).decode()))
    body = {
        "DataGenerator": "trainlet",
        "SchemaId": schema_id,
        "CreationDate": _CREATED[version],
        "FocusVersion": version,
        "DataGeneratorVersion": generator,
        "ColumnDefinition": definitions,
    }
    return schema_id, canonical_json(body)


_CREATED = {"1.2": "2026-12-01T00:00:00Z", "1.4": "2026-12-01T00:00:00Z"}
