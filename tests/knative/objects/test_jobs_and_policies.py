"""Steps that run as Jobs, and who may talk to a function."""

from __future__ import annotations

import pytest

from trainlet.core.errors import UserError
from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import all_objects
from trainlet_knative.objects.jobs import job_sink
from trainlet_knative.objects.policies import network_policy
from trainlet_knative.objects.services import service
from trainlet_knative.objects.triggers import trigger


@pytest.fixture
def job(spec: FunctionSpec) -> FunctionSpec:
    return spec.model_copy(update={"backend": "job"})


def test_kubernetes_never_repeats_a_job(cluster: Cluster, job: FunctionSpec) -> None:
    made = job_sink(cluster, "default", job)["spec"]["job"]["spec"]
    assert (made["backoffLimit"], made["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert made["ttlSecondsAfterFinished"] == 3600
    assert made["template"]["spec"]["terminationGracePeriodSeconds"] == 3600


def test_a_job_ends_a_while_after_the_steps_own_timeout(cluster: Cluster, job: FunctionSpec) -> None:
    assert "activeDeadlineSeconds" not in job_sink(cluster, "default", job)["spec"]["job"]["spec"]
    timed = job.model_copy(update={"timeout_s": 100.0})
    assert job_sink(cluster, "default", timed)["spec"]["job"]["spec"]["activeDeadlineSeconds"] == 1200 + 100 + 3600


def test_a_queue_is_named_where_the_cluster_has_one(cluster: Cluster, job: FunctionSpec) -> None:
    label = "kueue.x-k8s.io/queue-name"
    queued = job_sink(cluster.model_copy(update={"kueue_queue": "gpus"}), "default", job)["spec"]["job"]
    assert queued["metadata"]["labels"][label] == "gpus"
    assert label not in job_sink(cluster, "default", job)["spec"]["job"]["metadata"]["labels"]


def test_a_job_has_no_service_and_its_events_go_to_the_job_sink(cluster: Cluster, job: FunctionSpec) -> None:
    kinds = [one["kind"] for one in all_objects(cluster, "default", job)]
    assert kinds == ["ServiceAccount", "NetworkPolicy", "JobSink", "Trigger"]
    assert trigger(cluster, "default", job)["spec"]["subscriber"]["ref"]["kind"] == "JobSink"


def test_only_knative_reaches_a_worker(cluster: Cluster, spec: FunctionSpec) -> None:
    made = network_policy(cluster.model_copy(update={"node_cidrs": ("10.0.0.0/16",)}), "default", spec)["spec"]
    serving, ingress, node = made["ingress"]
    names = [
        one["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in (serving, ingress)
    ]
    assert names == ["knative-serving", "kourier-system"]
    assert node["from"] == [{"ipBlock": {"cidr": "10.0.0.0/16"}}]
    ports = [{one["port"] for one in rule["ports"]} for rule in made["ingress"]]
    assert ports == [{8012, 8013, 8112, 9090}, {8012, 8013, 8112}, {8012, 8013, 8112, 8022}]
    assert made["podSelector"]["matchLabels"]["trainlet.dev/function"] == spec.name


def test_nobody_reaches_a_job(cluster: Cluster, job: FunctionSpec) -> None:
    made = network_policy(cluster, "default", job)["spec"]
    assert made["policyTypes"] == ["Ingress"]
    assert "ingress" not in made, "no rule lets nobody in"


def test_with_oidc_a_service_gets_an_audience_and_a_job_sink_a_policy(
    cluster: Cluster, spec: FunctionSpec, job: FunctionSpec
) -> None:
    safe = cluster.model_copy(update={"oidc": True})
    subscriber = trigger(safe, "default", spec)["spec"]["subscriber"]
    assert subscriber["audience"] == "trainlet.dev/function/trainlet-default/digits-train"
    (container,) = service(safe, "default", spec)["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["TRAINLET_EVENT_AUDIENCE"] == subscriber["audience"], "the worker wants what the broker sends"
    assert "TRAINLET_EVENT_AUDIENCE" not in str(all_objects(cluster, "default", spec))
    assert "audience" not in trigger(cluster, "default", spec)["spec"]["subscriber"]
    policy = all_objects(safe, "default", job)[-1]
    assert policy["kind"] == "EventPolicy"
    assert policy["spec"]["from"][0]["ref"]["kind"] == "Trigger"
    assert "EventPolicy" not in {one["kind"] for one in all_objects(safe, "default", spec)}


def test_S2_installed_packages_are_shared_inside_a_namespace_only(cluster: Cluster, spec: FunctionSpec) -> None:
    shared = cluster.model_copy(update={"package_cache": "packages"})
    pod = service(shared, "vision", spec)["spec"]["template"]["spec"]
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "packages"}} in pod["volumes"]
    assert {"name": "cache", "mountPath": "/var/cache/trainlet"} in pod["containers"][0]["volumeMounts"]
    assert not any("hostPath" in one for one in pod["volumes"]), "a folder of the node is every project's"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "default"}, "service account named 'default'"),
        ({"timeout_s": 7200.0}, "at most 3600 s is allowed"),
        ({}, "at most 3600 s is wanted"),
    ],
)
def test_what_a_cluster_cannot_run_is_refused(cluster: Cluster, spec: FunctionSpec, change: dict, said: str) -> None:
    bounded = cluster.model_copy(update={"max_timeout_s": 3600.0})
    with pytest.raises(UserError, match=said):
        all_objects(bounded, "default", spec.model_copy(update=change))


@pytest.mark.parametrize("project", ["Vision", "a_b", "x" * 60, "a.b"])
def test_a_project_that_makes_no_namespace_is_refused(cluster: Cluster, spec: FunctionSpec, project: str) -> None:
    with pytest.raises(UserError, match="no DNS label"):
        all_objects(cluster, project, spec)
