"""The table of docs/checkpoints.md and the tests agree: each invariant, I1 to I20, has a test with its number in its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs" / "checkpoints.md"
NAMED = {
    int(number)
    for path in TESTS.rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text())
    for number in re.findall(r"_I(\d+)(?=_)", name)
}
DOCUMENTED = {
    int(number) for row in re.findall(r"^\| (I[^|]+) \|", DOCS.read_text(), re.M) for number in re.findall(r"\d+", row)
}


@pytest.mark.parametrize("number", range(1, 21))
def test_an_invariant_has_a_named_test_and_a_row_in_the_documentation(number: int) -> None:
    assert number in NAMED and number in DOCUMENTED
