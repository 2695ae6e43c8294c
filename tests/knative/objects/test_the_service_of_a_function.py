"""The rules behind the numbers of a function's Service."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core.specs import FunctionSpec, Resources
from trainlet_knative.objects import Cluster, all_objects
from trainlet_knative.objects.services import autoscaling_target, autoscaling_window_s, service


def pod_of(cluster: Cluster, spec: FunctionSpec) -> Any:
    return service(cluster, "default", spec)["spec"]["template"]["spec"]


def test_a_cpu_step_asks_for_no_device_and_no_node(cluster: Cluster, spec: FunctionSpec) -> None:
    plain = spec.model_copy(update={"resources": Resources(), "secrets": ()})
    pod = pod_of(cluster, plain)
    assert pod["containers"][0]["resources"] == {}
    assert "nodeSelector" not in pod
    assert "affinity" not in pod
    assert [volume["name"] for volume in pod["volumes"]] == ["shm", "home", "tmp", "token"]


def test_a_pod_has_one_token_and_only_the_training_api_accepts_it(cluster: Cluster, spec: FunctionSpec) -> None:
    pod = pod_of(cluster, spec)
    assert pod["automountServiceAccountToken"] is False
    (token,) = (volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "token")
    assert token == [{"serviceAccountToken": {"audience": "trainlet-api", "expirationSeconds": 3600, "path": "token"}}]
    (container,) = pod["containers"]
    folder = next(mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "token")
    file = next(one["value"] for one in container["env"] if one["name"] == "TRAINLET_WORKER_TOKEN_FILE")
    assert file == f"{folder}/token"


@pytest.mark.parametrize(
    "change", [{"bundle": "b" * 64}, {"packages_lock": "c" * 64}, {"imports": ("torch",)}, {"retries": {"times": 3}}]
)
def test_editing_code_makes_no_revision(cluster: Cluster, spec: FunctionSpec, change: dict[str, Any]) -> None:
    other = FunctionSpec.model_validate({**spec.model_dump(), **change})
    before, after = (service(cluster, "default", one) for one in (spec, other))
    assert before["spec"] == after["spec"]
    assert before["metadata"]["annotations"] != after["metadata"]["annotations"], "it is seen on the Service itself"


def test_other_resources_make_a_revision(cluster: Cluster, spec: FunctionSpec) -> None:
    other = spec.model_copy(update={"max_workers": 2})
    assert service(cluster, "default", spec)["spec"] != service(cluster, "default", other)["spec"]


def test_projects_are_apart(cluster: Cluster, spec: FunctionSpec) -> None:
    made = all_objects(cluster, "vision", spec)
    assert {one["metadata"]["namespace"] for one in made} == {"trainlet-vision"}
    (trigger,) = (one for one in made if one["kind"] == "Trigger")
    assert trigger["spec"]["filters"][0]["exact"]["source"] == "/projects/vision"


def test_a_long_grace_lengthens_the_drain(cluster: Cluster, spec: FunctionSpec) -> None:
    pod = pod_of(cluster, spec.model_copy(update={"grace_s": 7200.0}))
    assert pod["timeoutSeconds"] == pod["responseStartTimeoutSeconds"] == 7260


def test_the_root_is_read_only_and_what_must_be_written_is_a_volume(cluster: Cluster, spec: FunctionSpec) -> None:
    pod = pod_of(cluster, spec)
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    home = next(one["value"] for one in container["env"] if one["name"] == "HOME")
    assert written == {"/dev/shm", "/tmp", home}
    emptied = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == emptied


def test_credentials_of_the_store_come_from_a_secret_or_from_the_identity(cluster: Cluster, spec: FunctionSpec) -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/train"}
    chosen = cluster.model_copy(update={"store_secret": "store", "service_account_annotations": role})
    assert pod_of(chosen, spec)["containers"][0]["envFrom"] == [{"secretRef": {"name": "store"}}]
    account = all_objects(chosen, "default", spec)[0]
    assert (account["kind"], account["metadata"]["annotations"]) == ("ServiceAccount", role)


@given(st.integers(1, 1000), st.data())
def test_the_target_wants_exactly_as_many_pods_as_are_busy(most: int, data: st.DataObject) -> None:
    busy = data.draw(st.integers(1, most))
    target, window_s = autoscaling_target(most), autoscaling_window_s(most)
    undercounted = busy - busy / window_s  # the newest second lacks the pods' own share
    assert math.ceil(busy / target) == busy
    if most > 1:
        assert math.ceil(undercounted / target) == busy
    assert 6 <= window_s <= 3600
