"""The line of a row is the canonical JSON of its data, whatever the row says, and one by one or many together."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainlet.core.bills import Row
from trainlet.core.models import canonical_json
from trainlet.core.sums import Sums, line

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(["", '%s "%d\\', "\n\u2028"])
whole = st.integers(-(2**63), 2**63 - 1)
maybe = st.none() | whole
rows = st.builds(
    Row,
    id=texts,
    project=texts,
    period=st.sampled_from(["2026-07", "2026-08"]),
    kind=st.sampled_from(["usage", "reversal", "correction", "rounding"]),
    start_s=whole,
    end_s=whole,
    currency=texts,
    cost_nano=maybe,
    list_cost_nano=maybe,
    lease=texts,
    run_id=texts,
    task=texts,
    epoch=whole,
    function=texts,
    device=texts,
    sku=texts,
    virtual=st.booleans(),
    rate=texts,
    share=whole,
    part=whole,
    tags=st.dictionaries(texts, texts, max_size=3),
    phase=texts,
    version=texts,
    price_nano=maybe,
    list_price_nano=maybe,
    corrects=texts,
    corrected_period=texts,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(rows, max_size=5))
def test_a_line_is_the_canonical_json_of_its_row_and_sums_are_the_same_in_batches(some: list[Row]) -> None:
    assert [line(row) for row in some] == [canonical_json(row.data()) + b"\n" for row in some]
    one_by_one, together = Sums(), Sums()
    assert list(one_by_one.through(some)) == some
    together.add_all(some)
    assert _said(one_by_one) == _said(together)


def _said(sums: Sums) -> Any:
    return sums.rows, sums.seconds, sums.cost_nano, sums.list_nano, sums.unpriced, sums.digest
