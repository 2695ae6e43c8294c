"""Every object that trainlet makes is one that Kubernetes and Knative's types take, applied with our rights only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainlet.core.specs import CheckpointPolicy, FunctionSpec, GpuRequest, Resources
from trainlet.core.triggers import Watch
from trainlet_knative import installs
from trainlet_knative.backend import KnativeBackend
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, Refused, path_of
from trainlet_knative.objects import all_objects, pods, trigger_objects

EITHER = Resources(gpus=(GpuRequest(sku="H100-80GB", count=1), GpuRequest(sku="A100-80GB", count=1)), cpu=0.5)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpu": ({}, {}),
    "cpu": ({}, {"resources": Resources(cpu=2), "secrets": ()}),
    "job": ({"kueue_queue": "gpus", "oidc": True}, {"backend": "job", "timeout_s": 3600.0}),
    "either": ({"run_as_user": 1000}, {"resources": EITHER, "checkpoint": CheckpointPolicy(every_s=600)}),
    "slice": (
        {"node_cidrs": ("10.0.0.0/16",), "package_cache": "packages"},
        {"resources": Resources(gpus=(GpuRequest(sku="A30/1g.6gb", count=1),))},
    ),
    "virtual": (
        {"virtual_gpus": True, "oidc": True},
        {"max_workers": 1000},
    ),
    "longest name": ({}, {"name": "x" * 63}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, cluster: Cluster, spec: FunctionSpec) -> tuple[Cluster, FunctionSpec]:
    settings, options = KINDS[request.param]
    return cluster.model_copy(update=settings), spec.model_copy(update=options)


def test_every_object_is_taken_and_kept_as_it_was_sent(
    installed: Kubernetes, project: str, kind: tuple[Cluster, FunctionSpec]
) -> None:
    """Server-side apply refuses fields that a type does not know; what comes back holds all that was sent."""
    cluster, spec = kind
    for wanted in all_objects(cluster, project, spec):
        found = installed.apply(wanted)
        assert covers(found, wanted), wanted["kind"]
        again = installed.apply(wanted)
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"], "a second apply is nothing"


WATCHES = [
    Watch(name="on-data", filters=[{"exact": {"type": "com.example.created"}}, {"cesql": "subject LIKE 'images/%'"}]),
    Watch(name="n" * 63, filters=[{"not": {"any": [{"prefix": {"subject": "a"}}, {"suffix": {"source": "b"}}]}}]),
    Watch(name="nightly", when="0 3 * * MON-FRI", tz="Europe/Berlin"),
]


@pytest.mark.parametrize("oidc", [True, False], ids=["oidc", "open"])
def test_a_triggers_objects_are_taken_and_a_round_finds_nothing_to_do(
    installed: Kubernetes, project: str, cluster: Cluster, oidc: bool
) -> None:
    cluster = cluster.model_copy(update={"oidc": oidc, "open_events": not oidc})
    backend = KnativeBackend(cluster, installed)
    for watch in WATCHES:
        backend.watch(project, watch)
    made = [one for watch in WATCHES for one in trigger_objects(cluster, project, watch)]
    assert [one["kind"] for one in made] == ["Trigger", "Trigger", "PingSource"]
    for wanted in made:
        assert covers(installed.get(path_of(wanted)), wanted), wanted["kind"]
    before = versions(installed, made)
    backend.keep([], [(project, watch) for watch in WATCHES], [project])
    assert versions(installed, made) == before


def test_the_backend_applies_and_its_round_finds_nothing_to_do(
    installed: Kubernetes, project: str, kind: tuple[Cluster, FunctionSpec]
) -> None:
    cluster, spec = kind
    backend = KnativeBackend(cluster, installed)
    backend.apply(project, spec)
    before = versions(installed, all_objects(cluster, project, spec))
    backend.keep([(project, spec)], [], [project])
    assert versions(installed, all_objects(cluster, project, spec)) == before


def test_the_pod_is_one_that_kubernetes_would_run_under_its_strictest_policy(
    server: Any, kind: tuple[Cluster, FunctionSpec], project: str
) -> None:
    """The webhooks of Knative are not here, but the rules for pods are: fields, volumes, tolerations, pod security."""
    cluster, spec = kind
    name = f"strict-{project}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    body = {"apiVersion": "v1", "kind": "Pod", "spec": pods.pod(cluster, project, spec)}
    made = server.admin.apply({**body, "metadata": {"name": "worker", "namespace": name}})
    assert made["spec"]["containers"][0]["image"] == cluster.image


def test_a_job_sinks_job_is_one_that_kubernetes_takes(
    server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    job = spec.model_copy(update={"backend": "job", "timeout_s": 60.0})
    (sink,) = (one for one in all_objects(cluster, "default", job) if one["kind"] == "JobSink")
    body = {"apiVersion": "batch/v1", "kind": "Job", **sink["spec"]["job"]}
    body["metadata"] = {**body["metadata"], "name": f"job-{project}", "namespace": "default"}
    made = server.admin.apply(body)
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_the_policy_of_pods_does_refuse(server: Any, cluster: Cluster, spec: FunctionSpec, project: str) -> None:
    """A check of the check: the same pod with one right too many."""
    name = f"refusing-{project}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.admin.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    loose = pods.pod(cluster, project, spec)
    loose["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, "spec": loose}
    with pytest.raises(Refused, match="allowPrivilegeEscalation"):
        server.admin.create(f"/api/v1/namespaces/{name}/pods", body)


@pytest.mark.parametrize("overlay", installs.OVERLAYS)
def test_an_install_is_taken_and_a_second_one_changes_nothing(
    server: Any, settings: Path, project: str, overlay: str
) -> None:
    """Both overlays name the same Deployment, so each goes into a server as its first and its second install."""
    made = installs.objects(settings, [project], image="registry.example/api:1", overlay=overlay)
    renamed = [in_namespace(one, f"api-{project}") for one in made]
    first = {what: done for done, what in installs.apply(server.admin, renamed)}
    assert first[f"Deployment trainlet-api in api-{project}"] == "created"
    assert first[f"Namespace trainlet-{project}"] == "created"
    assert {done for done, _ in installs.apply(server.admin, renamed)} == {"unchanged"}
    changed = installs.objects(settings, [project], image="registry.example/api:2", overlay=overlay)
    again = dict(installs.apply(server.admin, [in_namespace(one, f"api-{project}") for one in changed]))
    assert again["changed"] == f"Deployment trainlet-api in api-{project}"


def in_namespace(wanted: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object of the API in another namespace than `trainlet`."""
    metadata = dict(wanted["metadata"])
    if metadata.get("namespace") == "trainlet":
        metadata["namespace"] = namespace
    if (wanted["kind"], metadata["name"]) == ("Namespace", "trainlet"):
        metadata["name"] = namespace
    return {**wanted, "metadata": metadata}


def versions(kubernetes: Kubernetes, wanted: list[dict[str, Any]]) -> list[str]:
    return [str((kubernetes.get(path_of(one)) or {})["metadata"]["resourceVersion"]) for one in wanted]


def covers(found: Any, wanted: Any) -> bool:
    """Say whether all that was sent came back; lists may not lose elements."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and covers(found[key], one) for key, one in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)
