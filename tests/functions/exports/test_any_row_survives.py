"""I5 as a property: whatever rows a ledger holds, both formats give them back, equal in every field."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlet.client.stores import DirectoryStore
from trainlet.core.bills import EVERY_PROJECT, Period, Row, Snapshot
from trainlet_functions.exports import verifying, writing

pytest.importorskip("pyarrow")
JULY = Period(2026, 7)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
words = texts.filter(lambda text: text.strip() == text and len(text) > 2)
tags = st.dictionaries(words, st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8), max_size=3)


@st.composite
def ledger_rows(draw: Any) -> list[Row]:
    """Draw usage, reversals and corrections of whole devices and parts."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["usage", "usage", "reversal", "correction"]))
        start = JULY.start_s + number * 3600 - (0 if kind == "usage" else 86_400)
        seconds, price = draw(st.integers(1, 3600)), draw(st.none() | st.integers(0, 10**12))
        listed = None if price is None else price + draw(st.integers(0, 10**6))
        sign = -1 if kind == "reversal" else 1
        corrected = {} if kind == "usage" else {"corrects": f"p/old-{number}", "corrected_period": "2026-06"}
        rows.append(
            Row(
                id=f"p/{number}/{kind}",
                project="p",
                period="2026-07",
                kind=kind,
                start_s=start,
                end_s=start + seconds,
                currency="USD",
                cost_nano=None if price is None else sign * seconds * price,
                list_cost_nano=None if listed is None else sign * seconds * listed,
                lease=draw(words),
                run_id="run-1",
                task=draw(words),
                epoch=draw(st.integers(1, 2**31)),
                function=draw(words),
                device=draw(words),
                sku=draw(st.sampled_from(["L4", "H100-80GB/1g.10gb"])),
                virtual=draw(st.booleans()),
                rate=draw(st.sampled_from(["standard", "spot", "committed"])),
                tags=draw(tags),
                phase="run",
                version="v1",
                price_nano=price,
                list_price_nano=listed,
                **corrected,
            )
        )
    return rows


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ledger_rows(), st.sampled_from(["1.2", "1.4"]))
def test_I5_an_export_is_turned_back_into_its_rows_and_breaks_no_rule(rows: list[Row], version: str) -> None:
    known = {"period": "2026-07", "state": "closed", "scope": EVERY_PROJECT, "currency": "USD", "digest": "d" * 64}
    snapshot = Snapshot.model_validate({**known, "as_of": "2026-08-01T00:00:00.000Z"})
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(Path(folder))
        written = writing.write(
            store, snapshot, rows, version=version, created_at="2026-08-02T00:00:00Z", generator="test"
        )
        report = verifying.verify(store, written.folder, (snapshot, rows))
    assert report.ok, (report.files, [str(one) for one in report.focus], report.ledger)
