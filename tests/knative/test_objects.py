"""The objects of a function: golden files that a person can read, and the rules behind their numbers."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core.errors import UserError
from trainlet.core.gpus import CATALOGUE
from trainlet.core.specs import FunctionSpec, GpuRequest, Resources
from trainlet_knative import objects

GOLDEN = Path(__file__).parent / "golden"


def test_a_gpu_step_becomes_these_objects(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    made = objects.all_objects(cluster, "default", spec)
    file = GOLDEN / "gpu_step.yaml"
    if os.environ.get("TRAINLET_RENEW_GOLDEN"):
        file.write_text(yaml.safe_dump_all(made, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text())), "TRAINLET_RENEW_GOLDEN=1 renews it; read the difference"


def test_a_cpu_step_asks_for_no_device_and_no_node(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    plain = spec.model_copy(update={"resources": Resources(), "secrets": ()})
    pod = objects.service(cluster, "default", plain)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {}, "requests": {}}
    assert "nodeSelector" not in pod
    assert "affinity" not in pod
    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "home", "token"]


def test_a_pod_has_one_token_and_only_the_training_api_accepts_it(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    pod = objects.service(cluster, "default", spec)["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (token,) = (volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "token")
    assert token == [{"serviceAccountToken": {"audience": "trainlet-api", "expirationSeconds": 3600, "path": "token"}}]
    (container,) = pod["containers"]
    folder = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "token")
    file = next(one["value"] for one in container["env"] if one["name"] == "TRAINLET_WORKER_TOKEN_FILE")
    assert file == f"{folder}/token"


def test_a_changed_function_is_a_changed_template(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    other = spec.model_copy(update={"bundle": "b" * 64})
    before, after = (objects.service(cluster, "default", one)["spec"]["template"] for one in (spec, other))
    assert before != after


def test_projects_are_apart(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    names = {one["metadata"]["namespace"] for one in objects.all_objects(cluster, "vision", spec)}
    assert names == {"trainlet-vision"}
    exact = objects.trigger(cluster, "vision", spec)["spec"]["filters"][0]["exact"]
    assert exact["source"] == "/projects/vision"


def test_a_long_grace_lengthens_the_drain(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    slow = spec.model_copy(update={"grace_s": 7200.0})
    pod = objects.service(cluster, "default", slow)["spec"]["template"]["spec"]
    assert pod["timeoutSeconds"] == pod["responseStartTimeoutSeconds"] == 7260


@given(st.integers(1, 1000), st.data())
def test_the_target_wants_exactly_as_many_pods_as_are_busy(most: int, data: st.DataObject) -> None:
    busy = data.draw(st.integers(1, most))
    target, window_s = objects.autoscaling_target(most), objects.autoscaling_window_s(most)
    undercounted = busy - busy / window_s  # the newest second lacks the pods' own share
    assert math.ceil(busy / target) == busy
    if most > 1:
        assert math.ceil(undercounted / target) == busy
    assert 6 <= window_s <= 3600


def test_every_sku_of_the_catalogue_has_a_resource() -> None:
    for model in CATALOGUE:
        assert objects.gpu_limits((GpuRequest(sku=model.sku, count=3),)) == {"nvidia.com/gpu": 3}
        for profile in model.slices:
            slices = objects.gpu_limits((GpuRequest(sku=f"{model.sku}/{profile}", count=1),))
            assert slices == {f"nvidia.com/mig-{profile}": 1}


def test_alternatives_become_an_affinity(cluster: objects.Cluster, spec: FunctionSpec) -> None:
    gpus = (GpuRequest(sku="H100-80GB", count=2), GpuRequest(sku="A100-80GB", count=2))
    either = spec.model_copy(update={"resources": Resources(gpus=gpus)})
    pod = objects.service(cluster, "default", either)["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["H100-80GB", "A100-80GB"]


def test_alternatives_that_one_pod_cannot_ask_for_are_an_error() -> None:
    with pytest.raises(UserError, match="alternatives"):
        objects.gpu_limits((GpuRequest(sku="H100-80GB", count=1), GpuRequest(sku="A100-80GB", count=2)))
