"""The objects of functions stay what they should be, and nobody else's are touched."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from trainlet.core.errors import PlatformError
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet_knative.backend import KnativeBackend
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, Refused, path_of
from trainlet_knative.objects import all_objects, trigger_objects

SERVING = "/apis/serving.knative.dev/v1"


@pytest.fixture
def backend(cluster: Cluster, installed: Kubernetes) -> KnativeBackend:
    return KnativeBackend(cluster, installed)


def found(kubernetes: Kubernetes, wanted: dict[str, Any]) -> dict[str, Any] | None:
    return kubernetes.get(path_of(wanted))


def test_what_was_changed_or_removed_is_put_right(
    backend: KnativeBackend, server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    backend.apply(project, spec)
    made = {one["kind"]: one for one in all_objects(cluster, project, spec)}
    server.admin.merge(path_of(made["Trigger"]), {"spec": {"broker": "elsewhere", "delivery": {"retry": 1}}})
    limits = {"spec": {"template": {"spec": {"timeoutSeconds": 5}}}}
    server.admin.merge(path_of(made["Service"]), limits)
    server.admin.delete(path_of(made["NetworkPolicy"]))
    backend.keep([(project, spec)], [], [project])
    trigger, service = found(server.admin, made["Trigger"]), found(server.admin, made["Service"])
    assert trigger is not None and trigger["spec"]["broker"] == "default" and trigger["spec"]["delivery"]["retry"] == 20
    assert service is not None and service["spec"]["template"]["spec"]["timeoutSeconds"] == 3600
    assert found(server.admin, made["NetworkPolicy"]) is not None


def test_what_others_add_to_our_objects_stays(
    backend: KnativeBackend, server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    backend.apply(project, spec)
    (service,) = (one for one in all_objects(cluster, project, spec) if one["kind"] == "Service")
    server.admin.merge(path_of(service), {"metadata": {"annotations": {"team.example/owner": "vision"}}})
    backend.keep([(project, spec)], [], [project])
    backend.apply(project, spec.model_copy(update={"max_workers": 3}))
    kept = found(server.admin, service)
    assert kept is not None and kept["metadata"]["annotations"]["team.example/owner"] == "vision"


def test_a_function_that_is_gone_takes_its_objects_with_it_and_nobody_elses(
    backend: KnativeBackend, server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    other = spec.model_copy(update={"name": "other"})
    backend.apply(project, spec)
    backend.apply(project, other)
    (service,) = (one for one in all_objects(cluster, project, spec) if one["kind"] == "Service")
    strange = {**service, "metadata": {**service["metadata"], "name": "by-hand"}}
    server.admin.apply(strange, "kubectl")  # our labels, another manager
    backend.keep([(project, other)], [], [project])
    assert [found(server.admin, one) for one in all_objects(cluster, project, spec)] == [None] * 4
    assert all(found(server.admin, one) for one in all_objects(cluster, project, other))
    assert found(server.admin, strange) is not None
    assert server.admin.get(f"/apis/eventing.knative.dev/v1/namespaces/trainlet-{project}/brokers/default") is not None


def test_a_step_that_becomes_a_job_leaves_no_service(
    backend: KnativeBackend, server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    job = spec.model_copy(update={"backend": "job"})
    backend.apply(project, spec)
    backend.apply(project, job)
    backend.keep([(project, job)], [], [project])
    (service,) = (one for one in all_objects(cluster, project, spec) if one["kind"] == "Service")
    assert found(server.admin, service) is None
    assert all(found(server.admin, one) for one in all_objects(cluster, project, job))


def test_two_deployers_at_once_end_with_one_of_the_two(
    cluster: Cluster, installed: Kubernetes, server: Any, spec: FunctionSpec, project: str
) -> None:
    """Two replicas register different versions of one function again and again: no error, and never a mixture."""
    versions = [spec.model_copy(update={"max_workers": number, "grace_s": 4000.0 + number}) for number in (3, 7)]
    failures: list[Exception] = []

    def deploy(version: FunctionSpec) -> None:
        one = KnativeBackend(cluster, server.as_account("trainlet", "trainlet-api"))
        try:
            for _ in range(10):
                one.apply(project, version)
        except PlatformError as error:
            failures.append(error)

    threads = [threading.Thread(target=deploy, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    (service,) = (one for one in all_objects(cluster, project, spec) if one["kind"] == "Service")
    kept = found(server.admin, service)
    assert kept is not None
    template = kept["spec"]["template"]
    scale = int(template["metadata"]["annotations"]["autoscaling.knative.dev/max-scale"])
    assert template["spec"]["timeoutSeconds"] == 4060 + scale
    managers = {one["manager"] for one in kept["metadata"]["managedFields"]}
    assert managers == {"trainlet"}


def test_an_object_of_a_wrong_shape_is_refused_with_its_field(installed: Kubernetes, cluster: Cluster, spec: FunctionSpec,
                                                              project: str) -> None:  # fmt: skip
    """A check of the check: this server knows Knative's fields."""
    (service,) = (one for one in all_objects(cluster, project, spec) if one["kind"] == "Service")
    service["spec"]["template"]["spec"]["timeOutSeconds"] = 5
    with pytest.raises(Refused, match="timeOutSeconds"):
        installed.apply(service)
    service["spec"]["template"]["spec"].pop("timeOutSeconds")
    service["spec"]["template"]["spec"]["timeoutSeconds"] = "soon"
    with pytest.raises(Refused, match="timeoutSeconds"):
        installed.apply(service)


def test_the_floor_of_a_revision_may_be_set_and_a_pod_pinned(
    backend: KnativeBackend, server: Any, spec: FunctionSpec, project: str
) -> None:
    """What Knative would make is made by hand here: a Revision that the Service's status names."""
    backend.apply(project, spec)
    namespace = f"{SERVING}/namespaces/trainlet-{project}"
    containers = [{"name": "worker", "image": "worker:1"}]
    revision = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Revision",
        "metadata": {"name": f"{spec.name}-00001"},
        "spec": {"containers": containers},
    }
    server.admin.create(f"{namespace}/revisions", revision)
    status = {"observedGeneration": 1, "latestCreatedRevisionName": f"{spec.name}-00001"}
    server.admin.merge(f"{namespace}/services/{spec.name}/status", {"status": status})
    backend.demand(project, spec, 4)
    made = server.admin.get(f"{namespace}/revisions/{spec.name}-00001")
    assert made["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "4"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy"}, "spec": {"containers": containers}}
    server.admin.create(f"/api/v1/namespaces/trainlet-{project}/pods", pod)
    patch = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1000"}}}
    assert backend._kubernetes.merge(f"/api/v1/namespaces/trainlet-{project}/pods/busy", patch) is not None


def test_a_triggers_objects_are_put_right_and_go_with_it(
    server: Any, cluster: Cluster, installed: Kubernetes, spec: FunctionSpec, project: str
) -> None:
    cluster = cluster.model_copy(update={"open_events": True})
    backend = KnativeBackend(cluster, installed)
    created = Watch(name=spec.name, filters=[{"exact": {"type": "com.example.created"}}])
    nightly = Watch(name="nightly", when="0 3 * * *", tz="Europe/Berlin")
    backend.apply(project, spec)
    backend.watch(project, created)
    backend.watch(project, nightly)
    (trigger,), (clock,) = (trigger_objects(cluster, project, one) for one in (created, nightly))
    server.admin.merge(path_of(trigger), {"spec": {"filters": None, "subscriber": {"uri": "http://elsewhere.example"}}})
    server.admin.delete(path_of(clock))
    backend.keep([(project, spec)], [(project, created), (project, nightly)], [project])
    assert found(server.admin, trigger)["spec"]["filters"] == trigger["spec"]["filters"]  # type: ignore[index]
    assert found(server.admin, clock) is not None
    backend.keep([(project, spec)], [(project, nightly)], [project])
    assert found(server.admin, trigger) is None
    own = {one["kind"]: one for one in all_objects(cluster, project, spec)}["Trigger"]
    assert found(server.admin, own) is not None, "a function of the same name keeps its Trigger"
    irregular = nightly.model_copy(update={"when": "0 3 L * *"})
    backend.keep([(project, spec)], [(project, irregular)], [project])
    assert found(server.admin, clock) is None, "the cluster's clock does not know such moments"


def test_the_state_of_a_projects_functions_may_be_read(
    backend: KnativeBackend, spec: FunctionSpec, project: str
) -> None:
    job = spec.model_copy(update={"name": "job", "backend": "job"})
    backend.apply(project, spec)
    backend.apply(project, job)
    found = backend.status(project)
    assert found.keys() == {spec.name, "job"}
    assert not found[spec.name].ready, "no Knative runs here"
