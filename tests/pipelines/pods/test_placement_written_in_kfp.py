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


def test_a_limit_on_slices_asks_for_slices_of_the_steps_gpus() -> None:
    spec, left = placed(resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}})
    assert [(one.sku, one.count) for one in spec.resources.gpus] == [("H100-80GB/1g.10gb", 1), ("A100-80GB/1g.10gb", 1)]
    assert left == []


def test_nodes_chosen_in_kfp_are_the_nodes_of_the_work() -> None:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    spec, left = placed(
        nodeSelector={"zone": "a"},
        tolerations=[
            {"key": "spot", "operator": "Exists"},
            {"key": "team", "value": "vision", "effect": "NoExecute", "tolerationSeconds": 60},
            {"operator": "Exists"},
            {"key": "bare"},
        ],
        affinity={**affinity, "podAffinity": None},
    )
    assert left == [] and spec.resources == SPEC.resources and spec.name != SPEC.name
    assert spec.nodes is not None
    assert (spec.nodes.node_selector, spec.nodes.affinity) == ({"zone": "a"}, affinity)
    spelled = [one.model_dump(by_alias=True, exclude_none=True) for one in spec.nodes.tolerations]
    assert spelled == [
        {"key": "spot", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoExecute", "tolerationSeconds": 60},
        {"operator": "Exists"},
        {"key": "bare", "operator": "Equal", "value": ""},
    ]
    assert FunctionSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_step_without_chosen_nodes_keeps_the_version_it_had() -> None:
    assert SPEC.digest() == SPEC.model_copy(update={"nodes": None}).digest()
    assert SPEC.digest() != placed(nodeSelector={"zone": "a"})[0].digest()


def test_what_has_no_counterpart_is_named() -> None:
    assert placed(resources={"limits": {"example.com/fpga": "1"}}) == (SPEC, ["limit example.com/fpga=1"])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"nodeSelector": {"a b": "c"}}, "a b=c is no node label"),
        ({"tolerations": [{"key": "a", "effect": "Sometimes"}]}, "tolerations.0.effect"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]}, "needs effect: NoExecute"),
        ({"affinity": {"nodeAfinity": {"a": 1}}}, "affinity has nodeAfinity"),
    ],
)
def test_nodes_that_kubernetes_would_refuse_are_refused_with_the_field(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match="written in KFP") as error:
        placed(**config)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": "0"}, {"nvidia.com/gpu": "1.5"}, {"cpu": "many"}, {"memory": "x"}]
)
def test_nonsense_is_refused(limits: dict[str, str]) -> None:
    with pytest.raises(UserError):
        placed(resources={"limits": limits})
