"""`trainlet doctor --cluster`: a cluster as it should be gives no complaint, and each fault is found by its check."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from trainlet.core.clocks import ManualClock, rfc3339
from trainlet_knative import installs, kustomizations
from trainlet_knative.catalogues import Catalogue
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path_of
from trainlet_knative.diagnosis import Finding, diagnose

SERVING = "/api/v1/namespaces/knative-serving/configmaps/config-"
EVENTING = "/api/v1/namespaces/knative-eventing/configmaps/config-"
BROKER = "/apis/eventing.knative.dev/v1/namespaces/trainlet-default/brokers/default"
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/trainlet-default/roles/trainlet-api"
SECRET = "/api/v1/namespaces/trainlet/secrets/trainlet-api"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RIGHTS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACTIVATOR = "/apis/apps/v1/namespaces/knative-serving/deployments/activator"
CLOCK = ManualClock()


def deployment(grace_s: int = 1200) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": grace_s}}}, "status": {"readyReplicas": 1}}


def node(name: str, sku: str | None, **allocatable: str) -> dict[str, Any]:
    labels = {} if sku is None else {"trainlet.dev/gpu-sku": sku}
    found = {key.replace("__", "/"): value for key, value in allocatable.items()}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": found}}


def good() -> dict[str, Any]:
    """Return the objects of a cluster as it should be, by path."""
    flags = ("nodeselector", "affinity", "tolerations", "runtimeclassname")
    found: dict[str, Any] = {
        SERVING + "features": {"data": {f"kubernetes.podspec-{flag}": "enabled" for flag in flags}},
        SERVING + "defaults": {"data": {"max-revision-timeout-seconds": "3600"}},
        SERVING + "autoscaler": {"data": {"allow-zero-initial-scale": "true"}},
        SERVING + "deployment": {"data": {"pod-is-always-schedulable": "true"}},
        SERVING + "network": {"data": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
        EVENTING + "br-default-channel": {"data": {"channel-template-spec": "kind: KafkaChannel"}},
        "/apis/sinks.knative.dev/v1alpha1": {"resources": [{"name": "jobsinks"}]},
        BROKER: {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        NODES: {"items": [node("gpu-1", "A100-80GB", nvidia__com__gpu="8")]},
        LEASES: {"items": [{"metadata": {"name": "gpu-1"}, "spec": {"renewTime": rfc3339(CLOCK.wall_ns())}}]},
        "/apis/storage.k8s.io/v1/storageclasses": {
            "items": [{"metadata": {"name": "fast",
                                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}]
        },
        SECRET: {"data": {"signing.key": "x", "bootstrap-token": "x", "database-url": "x"}},
        RIGHTS: {"status": {"allowed": True}},
        "/apis/authentication.k8s.io/v1/selfsubjectreviews": {
            "metadata": {"creationTimestamp": rfc3339(CLOCK.wall_ns())}
        },
    }  # fmt: skip
    found[NODES]["items"][0]["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    for part in ("controller", "webhook", "autoscaler", "activator"):
        found[f"/apis/apps/v1/namespaces/knative-serving/deployments/{part}"] = deployment()
    for part in ("eventing-controller", "eventing-webhook"):
        found[f"/apis/apps/v1/namespaces/knative-eventing/deployments/{part}"] = deployment()
    found["/apis/apps/v1/namespaces/trainlet/deployments/trainlet-api"] = deployment()
    for name in ("kourier-system", "trainlet-default"):
        found[f"/api/v1/namespaces/{name}"] = {"metadata": {"name": name}}
    for one in kustomizations.render(installs.FOLDER / "project"):
        if one["kind"] == "Role":
            found[path_of(one)] = one
    return copy.deepcopy(found)


@pytest.fixture
def look(kubernetes_api: Any, cluster: Cluster) -> Callable[..., dict[str, Finding]]:
    """Diagnose a cluster of these objects; returns the findings by check."""

    def run(objects: dict[str, Any], **settings: Any) -> dict[str, Finding]:
        kubernetes_api.objects = objects
        configuration = client.Configuration(host=kubernetes_api.url)
        configuration.retries = False
        kubernetes = Kubernetes(client.ApiClient(configuration))
        chosen = cluster.model_copy(update=settings)
        return {one.check: one for one in diagnose(kubernetes, chosen, ["default"], CLOCK)}

    return run


def test_a_cluster_as_it_should_be_gives_no_complaint(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(good())
    assert {name: one for name, one in found.items() if one.state != "ok"} == {}
    assert len(found) >= 25


def test_an_empty_cluster_says_for_each_thing_why_and_what_to_do(look: Callable[..., dict[str, Finding]]) -> None:
    empty = {path: one for path, one in good().items() if path in (RIGHTS,) or "selfsubject" in path}
    found = look(empty, store_secret="store")
    bad = {name for name, one in found.items() if one.state == "bad"}
    assert {"Knative Serving", "Knative Eventing", "allow-zero-initial-scale", "max-revision-timeout-seconds",
            "pod-is-always-schedulable", "feature kubernetes.podspec-nodeselector", "broker of default", "ingress",
            "training API", "Secret of the API", "project default"} <= bad  # fmt: skip
    for one in found.values():
        assert one.state == "ok" or (one.saw and one.why and one.fix), one


def without(path: str, *keys: str, put: Any = None) -> Callable[[dict[str, Any]], None]:
    """Return a fault: the object at a path, or a part of it, removed or replaced."""

    def break_it(objects: dict[str, Any]) -> None:
        if not keys:
            objects.pop(path)
            return
        part = objects[path]
        for key in keys[:-1]:
            part = part[key]
        if put is None:
            part.pop(keys[-1])
        else:
            part[keys[-1]] = put

    return break_it


FAULTS: list[tuple[str, str, Callable[[dict[str, Any]], None], str]] = [
    ("feature kubernetes.podspec-tolerations", "bad",
     without(SERVING + "features", "data", "kubernetes.podspec-tolerations"), '"kubernetes.podspec-tolerations":"enabled"'),
    ("feature kubernetes.podspec-volumes-emptydir", "bad",
     without(SERVING + "features", "data", "kubernetes.podspec-volumes-emptydir", put="disabled"), "kubectl"),
    ("feature kubernetes.podspec-hostipc", "warn",
     without(SERVING + "features", "data", "kubernetes.podspec-hostipc", put="enabled"), '"disabled"'),
    ("max-revision-timeout-seconds", "bad", without(SERVING + "defaults"), '"3600"'),
    ("allow-zero-initial-scale", "bad", without(SERVING + "autoscaler", "data", "allow-zero-initial-scale"), "kubectl"),
    ("enable-scale-to-zero", "bad", without(SERVING + "autoscaler", "data", "enable-scale-to-zero", put="false"), "true"),
    ("target-burst-capacity", "warn", without(SERVING + "autoscaler", "data", "target-burst-capacity", put="-1"), "211"),
    ("max-scale-limit", "warn", without(SERVING + "autoscaler", "data", "max-scale-limit", put="4"), "1000"),
    ("pod-is-always-schedulable", "bad", without(SERVING + "deployment"), "config-deployment"),
    ("activator grace", "warn",
     without(ACTIVATOR, "spec", "template", "spec", "terminationGracePeriodSeconds", put=600), "1200"),
    ("Knative Serving", "bad", without(ACTIVATOR, "status", put={}), "describe deployment activator"),
    ("ingress", "bad",
     without(SERVING + "network", "data", "ingress-class", put="istio.ingress.networking.knative.dev"), "istio-system"),
    ("ingress", "bad", without("/api/v1/namespaces/kourier-system"), "ingress_namespace"),
    ("JobSink", "warn", without("/apis/sinks.knative.dev/v1alpha1"), "1.15"),
    ("broker of default", "bad", without(BROKER), "trainlet install --project default"),
    ("broker of default", "bad", without(BROKER, "status", "conditions", put=[]), "describe broker"),
    ("durability of default", "warn", without(EVENTING + "br-default-channel"), "Kafka"),
    ("OIDC", "warn", lambda objects: objects.update({EVENTING + "features": {"data": {"authentication-oidc": "enabled"}}}),
     "oidc: true"),
    ("GPU nodes", "warn", without(NODES, "items", put=[]), "device plugin"),
    ("GPU nodes", "bad", without(NODES, "items", put=[
        {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100"}},
         "status": {"allocatable": {"nvidia.com/gpu": "8"}}}]), "kubectl label node n1"),
    ("storage class", "warn", without("/apis/storage.k8s.io/v1/storageclasses"), "is-default-class"),
    ("clock", "warn", without("/apis/authentication.k8s.io/v1/selfsubjectreviews", "metadata", "creationTimestamp",
                              put=rfc3339(CLOCK.wall_ns() + 60 * 10**9)), "NTP"),
    ("clocks of nodes", "bad", without(LEASES, "items", put=[
        {"metadata": {"name": "late"}, "spec": {"renewTime": rfc3339(CLOCK.wall_ns() + 60 * 10**9)}}]), "NTP"),
    ("rights", "warn", without(RIGHTS, "status", "allowed", put=False), "clusterrolebinding"),
    ("training API", "bad", without("/apis/apps/v1/namespaces/trainlet/deployments/trainlet-api"), "trainlet install"),
    ("Secret of the API", "bad", without(SECRET, "data", "signing.key"), "create secret generic trainlet-api"),
    ("project default", "bad", without("/api/v1/namespaces/trainlet-default"), "trainlet install --project default"),
    ("project default", "bad", without(ROLE, "rules", put=[]), "trainlet install --project default"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "state", "fault", "fix"), FAULTS)
def test_a_fault_is_found_by_its_check_and_by_no_other(
    look: Callable[..., dict[str, Finding]], check: str, state: str, fault: Callable[[dict[str, Any]], None], fix: str
) -> None:
    objects = good()
    fault(objects)
    found = look(objects)
    assert found[check].state == state, found[check]
    assert found[check].why and fix in found[check].fix, found[check]
    assert {name for name, one in found.items() if one.state != "ok"} == {check}


def test_each_sku_of_the_catalogue_is_looked_for_on_the_nodes(look: Callable[..., dict[str, Finding]]) -> None:
    entries = {"H100": {"runtime_class": "nvidia"}, "H100/1g.10gb": None, "A100": None, "L4": None}
    catalogue = Catalogue.model_validate({"gpus": entries})
    objects = good()
    nodes = [node("a", "H100-80GB"), node("b", "A100-80GB")]
    nodes[0]["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    objects[NODES] = {"items": nodes}
    found = look(objects, gpus=catalogue)
    assert found["GPU H100-80GB"].saw == "8 x nvidia.com/gpu on 1 nodes with trainlet.dev/gpu-sku=H100-80GB"
    assert (found["GPU H100-80GB/1g.10gb"].state, found["GPU A100-80GB"].state) == ("bad", "bad")
    assert found["GPU L4"].state == "warn" and "kubectl label node" in found["GPU L4"].fix
    assert found["runtime class nvidia"].state == "bad"


def test_a_cluster_without_gpus_is_right_when_it_says_so(look: Callable[..., dict[str, Finding]]) -> None:
    objects = good()
    objects[NODES] = {"items": []}
    objects[SERVING + "features"]["data"].pop("kubernetes.podspec-nodeselector")
    found = look(objects, virtual_gpus=True)
    assert {one.state for one in found.values()} == {"ok"}


def test_settings_that_ask_for_oidc_where_it_is_off_are_found(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(good(), oidc=True)
    assert found["OIDC"].state == "bad" and '"authentication-oidc":"enabled"' in found["OIDC"].fix


def test_a_cache_of_packages_needs_its_features_and_its_claim(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(good(), package_cache="packages")
    assert found["feature kubernetes.podspec-persistent-volume-write"].state == "bad"
    assert found["package cache of default"].state == "bad" and "ReadWriteMany" in found["package cache of default"].fix


def test_who_may_not_look_is_told_so_at_each_check(
    look: Callable[..., dict[str, Finding]], kubernetes_api: Any
) -> None:
    kubernetes_api.refuse = (403, "nodes is forbidden.")
    found = look(good())
    assert {one.state for one in found.values()} == {"warn"}
    assert all("nodes is forbidden." in one.saw and one.fix for one in found.values())
