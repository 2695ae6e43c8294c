"""The question that docs/billing.md puts to an export, asked by DuckDB: the answer is the ledger's, to the last digit."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.bills import FULL_SHARE

pytest.importorskip("pyarrow")
PAGE = Path(__file__).parents[3] / "docs" / "billing.md"


def test_the_documented_question_is_answered_as_the_ledger_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Any, rows: Any, make: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    charges = [*rows, *(make(20 + number, tags={"team": "nlp"}, cost_nano=3_600_000_007) for number in range(3))]
    export(DirectoryStore(tmp_path / "billing"), charges)
    (sql,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with duckdb.connect() as asked:
        found = asked.execute(sql).fetchall()
    cost: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    seconds: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for row in charges:
        if row.kind != "rounding":
            key = (row.tags.get("team", ""), row.sku)
            cost[key] += Decimal(row.cost_nano or 0).scaleb(-9)
            seconds[key] += Fraction(row.seconds * row.share, FULL_SHARE)
    assert {(team, sku): total for team, sku, _, total in found} == cost
    assert {(team, sku): Fraction(quantity) for team, sku, quantity, _ in found} == seconds
    assert [key[:2] for key in found] == sorted(cost)
