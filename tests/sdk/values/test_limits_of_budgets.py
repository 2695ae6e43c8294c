"""How people write the limit of a budget: a sum of money, or GPU-hours."""

from __future__ import annotations

import pytest

from trainlet.core.budgets import amount, parse_limit
from trainlet.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("500 USD", {"money_nano": 500 * 10**9, "currency": "USD"}),
        ("$2.50", {"money_nano": 2_500_000_000, "currency": "USD"}),
        ("200 GPU-hours", {"gpu_seconds": 720_000}),
        ("1.5 gpu hours", {"gpu_seconds": 5400}),
        ("90 GPU-seconds", {"gpu_seconds": 90}),
        ("1,000 GPU-h", {"gpu_seconds": 3_600_000}),
    ],
)
def test_a_limit_is_money_or_gpu_time(text: str, fields: dict[str, int | str]) -> None:
    assert parse_limit(text, "--limit ") == fields


@pytest.mark.parametrize("text", ["lots", "200 GPUs", "0 GPU-hours", "0.5 GPU-seconds", "-3 USD", "3 EUR"])
def test_a_wrong_limit_names_the_option(text: str) -> None:
    with pytest.raises(UserError, match="--limit "):
        parse_limit(text, "--limit ")


def test_amounts_are_written_as_they_are_read() -> None:
    assert amount(12_345_678_901, "USD") == "12.3457 USD"
    assert amount(720_000, "GPU-seconds") == "200.00 GPU-hours"
    assert amount(59, "GPU-seconds") == "59 GPU-seconds"
