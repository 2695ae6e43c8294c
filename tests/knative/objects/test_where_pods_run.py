"""Devices, nodes and taints, from a GPU catalogue that an admin edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainlet.core.errors import UserError
from trainlet.core.gpus import CATALOGUE
from trainlet.core.placements import Nodes, Toleration
from trainlet.core.specs import CheckpointPolicy, FunctionSpec, GpuRequest, Resources
from trainlet_knative.catalogues import Catalogue
from trainlet_knative.clusters import Cluster, load_catalogue
from trainlet_knative.objects.checks import check
from trainlet_knative.objects.placements import gpu_limits, placement
from trainlet_knative.objects.pods import pod

FILE = """
defaults:
  node_selector: {"nvidia.com/gpu.product": "{model}"}
  runtime_class: nvidia
gpus:
  A100:
    node_selector: {"nvidia.com/gpu.product": NVIDIA-A100-SXM4-80GB}
  H100-80GB:
  H100/1g.10gb:
    resource: nvidia.com/mig-1g.10gb.shared
    tolerations: [{key: slices, operator: Equal, value: "yes", effect: NoSchedule}]
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    path = tmp_path / "gpus.yaml"
    path.write_text(FILE)
    return load_catalogue(path)


def asking(spec: FunctionSpec, *skus: str, count: int = 1) -> FunctionSpec:
    gpus = tuple(GpuRequest(sku=sku, count=count) for sku in skus)
    return spec.model_copy(update={"resources": Resources(gpus=gpus)})


def keys(found: dict[str, Any]) -> list[str]:
    return [one["key"] for one in found.get("tolerations", [])]


def test_every_known_sku_can_be_asked_for_without_a_file() -> None:
    for model in CATALOGUE:
        assert gpu_limits(Catalogue(), (GpuRequest(sku=model.sku, count=3),)) == {"nvidia.com/gpu": "3"}
        for profile in model.slices:
            slices = gpu_limits(Catalogue(), (GpuRequest(sku=f"{model.sku}/{profile}", count=1),))
            assert slices == {f"nvidia.com/mig-{profile}": "1"}


def test_an_entry_says_only_what_differs_from_the_defaults(catalogue: Catalogue) -> None:
    a100, h100, piece = (catalogue.placement(sku) for sku in ("A100-80GB", "H100-80GB", "H100-80GB/1g.10gb"))
    assert a100.node_selector == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert h100.node_selector == piece.node_selector == {"nvidia.com/gpu.product": "H100-80GB"}
    assert (a100.resource, piece.resource) == ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb.shared")
    assert [one.key for one in h100.tolerations] == ["nvidia.com/gpu"]
    assert [one.key for one in piece.tolerations] == ["slices"]
    assert {one.runtime_class for one in (a100, h100, piece)} == {"nvidia"}


def test_the_catalogue_is_in_the_pod(cluster: Cluster, spec: FunctionSpec, catalogue: Catalogue) -> None:
    chosen = cluster.model_copy(update={"gpus": catalogue})
    found = placement(chosen, asking(spec, "H100-80GB/1g.10gb"))
    assert found["nodeSelector"] == {"nvidia.com/gpu.product": "H100-80GB"}
    assert found["runtimeClassName"] == "nvidia"
    assert {"key": "slices", "operator": "Equal", "value": "yes", "effect": "NoSchedule"} in found["tolerations"]
    limits = pod(chosen, "default", asking(spec, "H100-80GB/1g.10gb", count=2))["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/mig-1g.10gb.shared": "2"}


def test_a_gpu_that_the_catalogue_lacks_is_an_error_that_names_the_nearest(catalogue: Catalogue) -> None:
    with pytest.raises(UserError, match=r"A100-40GB.*lacks.*'A100-80GB'"):
        gpu_limits(catalogue, (GpuRequest(sku="A100-40GB", count=1),))


def test_of_alternatives_those_that_the_cluster_has_are_taken(
    cluster: Cluster, spec: FunctionSpec, catalogue: Catalogue
) -> None:
    chosen = cluster.model_copy(update={"gpus": catalogue})
    found = placement(chosen, asking(spec, "H200-141GB", "H100-80GB"))
    assert found["nodeSelector"] == {"nvidia.com/gpu.product": "H100-80GB"}


def test_alternatives_on_different_nodes_become_an_affinity(cluster: Cluster, spec: FunctionSpec) -> None:
    found = placement(cluster, asking(spec, "H100-80GB", "A100-80GB", count=2))
    required = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    values = [term["matchExpressions"][0]["values"] for term in required["nodeSelectorTerms"]]
    assert values == [["H100-80GB"], ["A100-80GB"]]
    assert keys(found).count("nvidia.com/gpu") == 1


def test_alternatives_that_one_pod_cannot_ask_for_are_an_error() -> None:
    with pytest.raises(UserError, match="alternatives"):
        gpu_limits(Catalogue(), (GpuRequest(sku="H100-80GB", count=1), GpuRequest(sku="A100-80GB", count=2)))


def test_a_pod_of_a_lost_node_is_given_up_soon(cluster: Cluster, spec: FunctionSpec) -> None:
    found = placement(cluster, asking(spec))
    assert [(one["key"], one["tolerationSeconds"]) for one in found["tolerations"]] == [
        ("node.kubernetes.io/unreachable", 20),
        ("node.kubernetes.io/not-ready", 20),
    ]
    assert placement(cluster.model_copy(update={"unreachable_s": None}), asking(spec)) == {}


def test_only_a_step_that_saves_may_run_where_nodes_vanish(cluster: Cluster, spec: FunctionSpec) -> None:
    saving = asking(spec).model_copy(update={"checkpoint": CheckpointPolicy()})
    assert "cloud.google.com/gke-spot" not in keys(placement(cluster, asking(spec)))
    assert "cloud.google.com/gke-spot" in keys(placement(cluster, saving))


def test_virtual_gpus_are_counted_and_asked_of_nobody(cluster: Cluster, spec: FunctionSpec) -> None:
    virtual = cluster.model_copy(update={"virtual_gpus": True})
    made = pod(virtual, "default", asking(spec, "H100-80GB", "A100-80GB", count=2))
    (container,) = made["containers"]
    assert {"name": "TRAINLET_VIRTUAL_GPUS", "value": "H100-80GB:2"} in container["env"]
    assert container["resources"] == {}
    assert "affinity" not in made
    cpu = pod(virtual, "default", asking(spec))["containers"][0]["env"]
    assert {"name": "TRAINLET_VIRTUAL_GPUS", "value": "0"} in cpu


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus: {A10O: }", "Did you mean 'A10'"),
        ("gpus: {H100: , H100-80GB: }", "there twice"),
        ("gpus: {}", "gpus is empty"),
        ("gpus: {A100: 4}", "write what differs"),
        ("gpus: {A100: {resource: gpu}}", "gpus.A100.resource='gpu'"),
        ("gpus: {A100: {node_selector: {'a b': x}}}", "no node label"),
        ("gpus: {A100: {node_selector: {a: '{sku}'}}}", r"placeholders are \{model\}"),
        ("gpus: {A100: {tolerations: [{key: k, value: v}]}}", "operator Equal needs a value"),
        ("gpus: {A100: {tolerations: [{key: k, tolerationSeconds: 5}]}}", "needs effect: NoExecute"),
        ("gpu: {A100: }", "gpu is no setting. Did you mean 'gpus'"),
        ("[]", "holds no settings"),
        ("gpus: {A100", "is no YAML"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        load_catalogue(path)
    assert str(error.value).startswith(str(path))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def choosing(spec: FunctionSpec, **nodes: Any) -> FunctionSpec:
    return spec.model_copy(update={"nodes": Nodes(**nodes)})


def rule(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def test_nodes_that_somebody_chose_are_added_to_those_of_the_catalogue(
    cluster: Cluster, catalogue: Catalogue, spec: FunctionSpec
) -> None:
    own = cluster.model_copy(update={"gpus": catalogue})
    zone = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [rule("zone", "a", "b")]}}}
    chosen = choosing(asking(spec, "A100-80GB"), node_selector={"disk": "ssd"}, affinity=zone)
    found = placement(own, chosen.model_copy(update={"nodes": chosen.nodes}))
    assert found["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "disk": "ssd"}
    assert found["affinity"] == zone


def test_alternatives_and_a_chosen_affinity_must_both_hold(
    cluster: Cluster, catalogue: Catalogue, spec: FunctionSpec
) -> None:
    own = cluster.model_copy(update={"gpus": catalogue})
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": rule("disk", "ssd")}]}
    terms = {REQUIRED: {"nodeSelectorTerms": [rule("zone", "a"), rule("zone", "b")]}}
    both = choosing(asking(spec, "A100-80GB", "H100-80GB"), affinity={"nodeAffinity": {**terms, **preferred}})
    found = placement(own, both)["affinity"]["nodeAffinity"]
    pairs = [[one["values"][0] for one in term["matchExpressions"]] for term in found[REQUIRED]["nodeSelectorTerms"]]
    a100, h100 = "NVIDIA-A100-SXM4-80GB", "H100-80GB"
    assert pairs == [[a100, "a"], [a100, "b"], [h100, "a"], [h100, "b"]]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"]
    apart = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host"}]}}
    found = placement(own, choosing(asking(spec, "A100-80GB", "H100-80GB"), affinity=apart))["affinity"]
    assert found["podAntiAffinity"] and len(found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]) == 2


def test_tolerations_that_somebody_chose_are_there_once(cluster: Cluster, spec: FunctionSpec) -> None:
    wanted = (Toleration(key="team", effect="NoSchedule"), Toleration(), Toleration(key="team", effect="NoSchedule"))
    found = placement(cluster, choosing(spec, tolerations=wanted))["tolerations"]
    assert found[-2:] == [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}]


def test_a_selector_against_the_catalogue_is_refused(cluster: Cluster, spec: FunctionSpec) -> None:
    with pytest.raises(UserError, match="contradicts the GPU catalogue"):
        placement(cluster, choosing(spec, node_selector={"trainlet.dev/gpu-sku": "T4"}))


def test_an_admin_may_keep_the_choice_of_nodes(cluster: Cluster, spec: FunctionSpec) -> None:
    strict = cluster.model_copy(update={"steps_choose_nodes": False})
    check(strict, "default", spec)
    with pytest.raises(UserError, match="steps_choose_nodes: false"):
        check(strict, "default", choosing(spec, node_selector={"zone": "a"}))
