"""Limits and node selectors of a KFP task, as they arrive in `task_config`, change what the GPU work gets."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core.errors import UserError
from trainlet.core.specs import Entry, FunctionSpec, GpuRequest, Resources
from trainlet_pipelines.pods.placements import TaskConfig, apply

SPEC = FunctionSpec(
    name="train",
    bundle="0" * 64,
    entry=Entry(module="m", qualname="f"),
    resources=Resources(gpus=(GpuRequest(sku="H100-80GB", count=2), GpuRequest(sku="A100-80GB", count=4))),
    ranks=2,
)


def placed(**config: Any) -> tuple[FunctionSpec, list[str]]:
    return apply(SPEC, TaskConfig.model_validate(config))


def test_nothing_written_changes_nothing() -> None:
    assert placed(resources={}, nodeSelector=None) == (SPEC, [])


def test_a_limit_sets_the_number_of_devices_and_the_ranks_that_follow_it() -> None:
    spec, left = placed(resources={"limits": {"nvidia.com/gpu": "8", "cpu": "500m", "memory": "4Gi"}})
    assert [(one.sku, one.count) for one in spec.resources.gpus] == [("H100-80GB", 8), ("A100-80GB", 8)]
    assert (spec.resources.cpu, spec.resources.memory_bytes, spec.ranks, left) == (0.5, 4 * 2**30, 8, [])


def test_a_changed_function_has_a_name_of_its_own_that_says_of_which_it_is_one() -> None:
    one, _ = placed(resources={"limits": {"nvidia.com/gpu": "8"}})
    other, _ = placed(resources={"limits": {"nvidia.com/gpu": "1"}})
    assert one.name.startswith("train-") and one.name != other.name != SPEC.name
    assert one == placed(resources={"limits": {"nvidia.com/gpu": "8"}})[0], "each retry makes the same one"


@pytest.mark.parametrize(
    ("value", "sku"),
    [("NVIDIA-A100-SXM4-80GB", "A100-80GB"), ("nvidia-tesla-t4", "T4"), ("NVIDIA-H100-80GB-HBM3", "H100-80GB")],
)
def test_a_node_selector_that_names_a_gpu_chooses_it(value: str, sku: str) -> None:
    spec, left = placed(nodeSelector={"nvidia.com/gpu.product": value})
    assert ([one.sku for one in spec.resources.gpus], left) == ([sku], [])


def test_what_has_no_counterpart_is_named() -> None:
    spec, left = placed(
        nodeSelector={"zone": "a", "nvidia.com/gpu.product": "Mystery-9"},
        tolerations=[{"key": "spot", "operator": "Exists"}, {"operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        resources={"limits": {"example.com/fpga": "1"}},
    )
    assert spec == SPEC
    assert left == [
        "node selector zone=a", "node selector nvidia.com/gpu.product=Mystery-9", "limit example.com/fpga=1",
        "toleration spot", "toleration *", "affinity",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "1.5"}, {"cpu": "many"}, {"memory": "x"}]
)
def test_nonsense_is_refused(limits: dict[str, str]) -> None:
    with pytest.raises(UserError):
        placed(resources={"limits": limits})
