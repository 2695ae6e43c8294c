from __future__ import annotations

from typing import Any

import pytest

from trainlet.core import gpus
from trainlet.core.errors import UserError
from trainlet.core.specs import GpuRequest


@pytest.mark.parametrize(
    ("written", "sku", "count"),
    [
        ("A100", "A100-80GB", 1),
        ("a100:2", "A100-80GB", 2),
        ("A100-40GB", "A100-40GB", 1),
        ("H100/1g.10gb", "H100-80GB/1g.10gb", 1),
        ("H100/1g.10gb:3", "H100-80GB/1g.10gb", 3),
        ("h200", "H200-141GB", 1),
        ("rtx 4090", "RTX-4090", 1),
    ],
)
def test_a_gpu_is_read_as_people_write_it(written: str, sku: str, count: int) -> None:
    assert gpus.parse_gpu(written) == GpuRequest(sku=sku, count=count)


def test_every_sku_and_alias_of_the_catalogue_reads_as_its_sku() -> None:
    names = [(name, model.sku) for model in gpus.CATALOGUE for name in (model.sku, *model.aliases)]
    assert len({name.lower() for name, _ in names}) == len(names)
    for name, sku in names:
        assert gpus.canonical_sku(name) == sku
    for model in gpus.CATALOGUE:
        for profile in model.slices:
            assert gpus.canonical_sku(f"{model.sku}/{profile}") == f"{model.sku}/{profile}"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("A1000", "'A100"),
        ("H10", "'H100"),
        ("V10O", "'V100"),
        ("H100/1g.10", "'1g.10gb'"),
        ("T4/1g.5gb", "whole T4"),
        ("A100:2/1g.10gb", "A100/1g.10gb:2"),
        ("A100:0", "A100:1"),
        ("A100:two", "A100:1"),
        ("A100:", "A100:2"),
        ("", "A100:2"),
    ],
)
def test_an_unknown_gpu_is_an_error_that_names_the_nearest(written: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        gpus.parse_gpu(written)
    assert hint in str(caught.value)


def test_a_list_is_an_ordered_fallback() -> None:
    assert [one.sku for one in gpus.parse_gpus(["H100:2", "A100:2"])] == ["H100-80GB", "A100-80GB"]


@pytest.mark.parametrize("written", [2, True, [], ["A100", "A100-80GB"], [2], {"A100": 2}])
def test_what_is_no_gpu_is_an_error(written: Any) -> None:
    with pytest.raises(UserError, match="gpu="):
        gpus.parse_gpus(written)
