from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trainlet.core.durations import parse_duration_s, parse_money_nano, parse_size_bytes
from trainlet.core.errors import UserError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2h", 7200),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5 hours", 5400),
        ("10 min", 600),
        ("250ms", 0.25),
        ("2d", 172800),
        (7200, 7200),
        (0.5, 0.5),
        (timedelta(minutes=3), 180),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: Any, seconds: float) -> None:
    assert parse_duration_s(written, "timeout=") == seconds


@pytest.mark.parametrize(
    "written", ["2 fortnights", "soon", "2", "", "-2h", 0, -1, float("nan"), float("inf"), True, None, []]
)
def test_a_bad_duration_is_an_error_that_names_the_option(written: Any) -> None:
    with pytest.raises(UserError, match="timeout="):
        parse_duration_s(written, "timeout=")


def test_a_misspelt_unit_of_time_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match='"2h"'):
        parse_duration_s("2hous", "timeout=")


def test_a_number_without_a_unit_in_a_text_asks_for_the_unit() -> None:
    with pytest.raises(UserError, match='"30s"'):
        parse_duration_s("30", "timeout=")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("16Gi", 16 * 2**30),
        ("16GiB", 16 * 2**30),
        ("64GB", 64 * 10**9),
        ("512Mi", 512 * 2**20),
        ("1.5Gi", 3 * 2**29),
        (4096, 4096),
    ],
)
def test_a_size_is_read_as_people_write_it(written: Any, size: int) -> None:
    assert parse_size_bytes(written, "memory=") == size


def test_a_misspelt_unit_of_size_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match='Did you mean "16Gi"'):
        parse_size_bytes("16gi", "memory=")


@pytest.mark.parametrize("written", ["much", "", 0, -5, True, 1.5, "0Gi"])
def test_a_bad_size_is_an_error(written: Any) -> None:
    with pytest.raises(UserError, match="memory="):
        parse_size_bytes(written, "memory=")


@pytest.mark.parametrize(
    ("written", "nano"),
    [
        ("20 USD", 20 * 10**9),
        ("$2.50", 25 * 10**8),
        ("1,000 usd", 10**12),
        (3, 3 * 10**9),
        ("0.000000001", 1),
        (0.1, 10**8),
    ],
)
def test_money_becomes_whole_nano_units(written: Any, nano: int) -> None:
    assert parse_money_nano(written, "budget=") == nano


@pytest.mark.parametrize("written", ["20 EUR", "free", "0", -1, "0.0000000001", float("nan"), True, None])
def test_bad_money_is_an_error(written: Any) -> None:
    with pytest.raises(UserError, match="budget="):
        parse_money_nano(written, "budget=")
