"""The contract's way to a real cluster, as far as a Kubernetes API server without nodes lets it go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real.clusters import RealCluster, Target

from trainlet_knative.connections import path
from trainlet_knative.objects import Cluster, all_objects

AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
ENVIRONMENT = {
    "TRAINLET_TEST_KUBECONFIG": "kubeconfig",
    "TRAINLET_TEST_IMAGE": "registry.example/api:1",
    "TRAINLET_TEST_BROKER": "default",
    "TRAINLET_TEST_NAMESPACE": "given",
    "TRAINLET_TEST_STORE": "s3://contract",
}


def test_a_target_needs_everything_that_it_names() -> None:
    assert Target.from_environment({}) is None
    found = Target.from_environment(ENVIRONMENT | AWS)
    assert found is not None
    assert found.store_environment == AWS
    with pytest.raises(AssertionError, match="needs TRAINLET_TEST_IMAGE, TRAINLET_TEST_STORE"):
        Target.from_environment({**ENVIRONMENT, "TRAINLET_TEST_IMAGE": "", "TRAINLET_TEST_STORE": ""})


@pytest.fixture
def real(server: Any, project: str, tmp_path: Path) -> RealCluster:
    """Return the target on a namespace that is there, as it is given one."""
    server.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project}}, "test")
    target = Target("unused", "registry.example/api:1", "default", project, "s3://contract", AWS)
    return RealCluster(server.admin, target, tmp_path, drain_s=60)


def everything(real: RealCluster) -> list[str]:
    """Return the paths of what a test of the contract leaves in a cluster."""
    kinds = [("v1", "serviceaccounts"), ("v1", "secrets"), ("v1", "configmaps"), ("v1", "services"), ("v1", "pods")]
    kinds += [("apps/v1", "deployments"), ("policy/v1", "poddisruptionbudgets"), ("v1", "persistentvolumeclaims")]
    kinds += [("rbac.authorization.k8s.io/v1", "roles"), ("rbac.authorization.k8s.io/v1", "rolebindings")]
    kinds += [("serving.knative.dev/v1", "services"), ("eventing.knative.dev/v1", "triggers")]
    kinds += [("networking.k8s.io/v1", "networkpolicies")]
    found = []
    for version, plural in kinds:
        at = path(version, real.namespace, plural)
        found += [f"{at}/{one['metadata']['name']}" for one in real.kubernetes.select(at)]
    for plural in ("clusterroles", "clusterrolebindings"):
        at = path("rbac.authorization.k8s.io/v1", None, plural)
        names = [one["metadata"]["name"] for one in real.kubernetes.select(at)]
        found += [f"{at}/{name}" for name in names if name.endswith(real.namespace)]
    return sorted(found)


def test_what_it_installs_is_taken_and_nothing_of_it_is_left(real: RealCluster, spec: Any) -> None:
    before = everything(real)
    real.install()
    own = real.kubernetes.get(f"{path('apps/v1', real.namespace, 'deployments')}/trainlet-api")
    assert own is not None
    (container,) = own["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/api:1"
    settings = Cluster.model_validate(real._settings)
    for wanted in all_objects(settings, real.project, spec):
        real.kubernetes.apply(wanted)
    assert len(everything(real)) > len(before) + 10
    claim = f"{path('v1', real.namespace, 'persistentvolumeclaims')}/trainlet-home"
    real.kubernetes.merge(claim, {"metadata": {"finalizers": None}})  # here no controller lets go of it
    real.remove()
    assert everything(real) == before


def test_it_reads_floor_and_pin_and_makes_a_new_template(real: RealCluster, spec: Any) -> None:
    settings = Cluster.model_validate(real._settings)
    for wanted in all_objects(settings, real.project, spec):
        real.kubernetes.apply(wanted)
    labels = {"app.kubernetes.io/managed-by": "trainlet", "trainlet.dev/function": spec.name}
    container = {"name": "worker", "image": "worker:1"}
    for number, floor in ((1, "0"), (2, "3")):
        revision = {
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Revision",
            "metadata": {
                "name": f"{spec.name}-{number:05d}",
                "namespace": real.namespace,
                "labels": labels,
                "annotations": {"autoscaling.knative.dev/min-scale": floor},
            },
            "spec": {"containers": [container]},
        }
        real.kubernetes.apply(revision, "test")
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    for name, cost in (("busy", "1000"), ("idle", "0")):
        annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
        metadata = {"name": name, "namespace": real.namespace, "labels": labels, "annotations": annotations}
        real.kubernetes.apply({**pod, "metadata": metadata}, "test")
    assert real.revisions(spec.name) == [f"{spec.name}-00001", f"{spec.name}-00002"]
    assert real.floor(spec.name) == 3
    assert (real.pinned("busy"), real.pinned("idle")) == (True, False)
    at = f"{path('serving.knative.dev/v1', real.namespace, 'services')}/{spec.name}"
    before = real.kubernetes.get(at)
    real.redeploy(spec.name)
    after = real.kubernetes.get(at)
    assert before is not None and after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    real.kill_pod("idle")
    real.delete_pod("busy")
    assert real.pods(spec.name) == []


def test_what_only_an_imitation_can_do_is_skipped(real: RealCluster) -> None:
    with pytest.raises(pytest.skip.Exception, match="a lost node"):
        real.lose_pod("any")
