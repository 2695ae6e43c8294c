"""Price lists: what a person may write, and how a wrong one is answered."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from trainlet.core.errors import UserError
from trainlet.core.gpus import CATALOGUE
from trainlet_functions.billing import pricefiles, prices

HEAD = "version: v1\ncurrency: USD\neffective_from: 2026-01-01T00:00:00Z\n"


def read(tmp_path: Path, text: str) -> prices.PriceList:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return pricefiles.load(tmp_path)


def test_the_packaged_list_prices_every_sku_of_the_catalogue_and_no_other() -> None:
    known = {sku for model in CATALOGUE for sku in (model.sku, *(f"{model.sku}/{part}" for part in model.slices))}
    assert set(pricefiles.load().versions[0].per_gpu_hour) == known


def test_an_hour_price_becomes_whole_nano_units_per_second(tmp_path: Path) -> None:
    version = read(tmp_path, HEAD + 'per_gpu_hour: {H100-80GB: "3.95", A100-80GB: 2}').versions[0]
    assert version.nano_per_second("H100-80GB") == 1_097_222
    assert version.nano_per_second("A100-80GB") == 555_556
    assert version.nano_per_second("L4") is None


def test_a_price_per_second_is_kept_exactly_and_shown_per_hour(tmp_path: Path) -> None:
    text = HEAD + 'nano_per_gpu_second: {H100-80GB: 1097223, L4: 1}\nper_gpu_hour: {A100-80GB: "2.50"}'
    version = read(tmp_path, text).versions[0]
    assert [version.nano_per_second(sku) for sku in ("H100-80GB", "L4", "A100-80GB")] == [1_097_223, 1, 694_444]
    assert version.per_gpu_hour["H100-80GB"] == Decimal("3.9500028")


def test_the_home_list_wins_over_the_packaged_one(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + 'per_gpu_hour: {L4: "1.00"}').versions[0].version == "v1"
    assert pricefiles.load(tmp_path / "elsewhere").versions[0].version != "v1"


def test_versions_are_ordered_by_their_start(tmp_path: Path) -> None:
    later = HEAD.replace("v1", "v2").replace("2026-01-01", "2026-07-01") + 'per_gpu_hour: {L4: "2"}'
    both = [later, HEAD + 'per_gpu_hour: {L4: "1"}']
    listed = read(tmp_path, "\n".join("- " + one.replace("\n", "\n  ") for one in both))
    assert [version.version for version in listed.versions] == ["v1", "v2"]
    cut = listed.cuts_s[0]
    assert [listed.at(second).version for second in (0, cut - 1, cut)] == ["v1", "v1", "v2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('per_gpu_hour: {L4: "-1"}', "per_gpu_hour.L4"),
        ("per_gpu_hour: {L4: 0.79}", "quoted string"),
        ('per_gpu_hour: {L4: "cheap"}', "not a number"),
        ('per_gpu_hour: {L4: "nan"}', "per_gpu_hour.L4"),
        ("per_gpu_hour: {L4: [1]}", "not a number"),
        ('per_gpu_hour:\n  L4: "1"\n  L4: "2"', "line 6"),
        ('per_gpu_hour: {A100: "1"}', "'A100-80GB'"),
        ('per_gpu_hour: {L4: "1"}\ndiscount: 5', "discount"),
        ("nano_per_gpu_second: {L4: 1.5}", "whole number"),
        ("nano_per_gpu_second: {L4: -1}", "per_gpu_hour.L4"),
        ('nano_per_gpu_second: {L4: 1}\nper_gpu_hour: {L4: "1"}', "L4 has a price per hour and one per second"),
        ("per_gpu_hour: {L4: !!python/object:object {}}", "cannot be read"),
        ("", "per_gpu_hour"),
    ],
)
def test_a_wrong_list_is_an_error_that_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match="price list") as caught:
        read(tmp_path, HEAD + text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("00:00:00Z", "00:00:00.5Z", "whole seconds"),
        ("00:00:00Z", "00:00:00+02:00", "UTC"),
        ("USD", "dollars", "currency"),
        ("version: v1\n", "", "version"),
    ],
)
def test_a_wrong_head_is_an_error_that_names_the_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, HEAD.replace(old, new) + 'per_gpu_hour: {L4: "1"}')
    assert said in str(caught.value)


@pytest.mark.parametrize("second", ["v1", "v2"])
def test_overlapping_versions_are_an_error(tmp_path: Path, second: str) -> None:
    one = HEAD + 'per_gpu_hour: {L4: "1"}'
    other = one.replace("v1", second) if second == "v2" else one.replace("2026-01-01", "2026-02-01")
    with pytest.raises(UserError, match="overlap"):
        read(tmp_path, "\n".join("- " + text.replace("\n", "\n  ") for text in (one, other)))
