"""What the backend asks of Kubernetes, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from trainlet.core.clocks import ManualClock
from trainlet.core.errors import PlatformError
from trainlet.core.specs import FunctionSpec
from trainlet_knative.backend import KnativeBackend
from trainlet_knative.connections import Kubernetes
from trainlet_knative.objects import Cluster

SERVING = "/apis/serving.knative.dev/v1/namespaces/trainlet-default"
SERVICE = f"{SERVING}/services/digits-train"
REVISION = f"{SERVING}/revisions/digits-train-00002"
POD = "/api/v1/namespaces/trainlet-default/pods/digits-train-00002-x"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backend(cluster: Cluster, kubernetes_api: Any, clock: ManualClock) -> Iterator[KnativeBackend]:
    """Return a backend that talks to the stand-in."""
    configuration = client.Configuration(host=kubernetes_api.url)
    configuration.retries = False
    made = KnativeBackend(cluster, Kubernetes(client.ApiClient(configuration)), clock=clock)
    yield made
    made.close()


def reconciled(kubernetes_api: Any, *, seen: int = 2) -> None:
    """Make the Service as Knative leaves it when it has seen generation `seen` of 2."""
    status = {"observedGeneration": seen, "latestCreatedRevisionName": "digits-train-00002"}
    kubernetes_api.objects[SERVICE] = {"metadata": {"generation": 2}, "status": status}
    kubernetes_api.objects[REVISION] = {"metadata": {"name": "digits-train-00002"}}


def floor(kubernetes_api: Any) -> str | None:
    annotations = kubernetes_api.objects[REVISION]["metadata"].get("annotations", {})
    value = annotations.get("autoscaling.knative.dev/min-scale")
    return None if value is None else str(value)


def test_apply_is_server_side_and_owns_its_fields(
    backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec
) -> None:
    backend.apply("default", spec)
    writes = kubernetes_api.writes()
    assert [call.body["kind"] for call in writes] == ["ServiceAccount", "NetworkPolicy", "Service", "Trigger"]
    for call in writes:
        assert (call.method, call.content_type) == ("PATCH", "application/apply-patch+yaml")
        assert call.query == "fieldManager=trainlet&force=true"
        assert call.path.endswith(call.body["metadata"]["name"])
    assert kubernetes_api.objects[SERVICE]["spec"]["template"]["spec"]["containerConcurrency"] == 0


def test_demand_is_the_newest_revisions_floor(backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec) -> None:
    reconciled(kubernetes_api)
    backend.demand("default", spec, 3)
    assert floor(kubernetes_api) == "3"
    (patch,) = kubernetes_api.writes()
    assert (patch.path, patch.content_type) == (REVISION, "application/merge-patch+json")
    backend.demand("default", spec, 0)
    assert floor(kubernetes_api) == "0"


def test_demand_never_exceeds_the_maximum(backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec) -> None:
    reconciled(kubernetes_api)
    backend.demand("default", spec, 500)
    assert floor(kubernetes_api) == "8"


def test_the_same_demand_again_asks_nothing_for_a_while(
    backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec, clock: ManualClock
) -> None:
    reconciled(kubernetes_api)
    backend.demand("default", spec, 3)
    kubernetes_api.calls.clear()
    for _ in range(5):
        backend.demand("default", spec, 3)
    assert kubernetes_api.calls == []
    clock.advance(31)
    backend.demand("default", spec, 3)
    assert len(kubernetes_api.writes()) == 1, "somebody may have taken the floor away meanwhile"


def test_a_new_revision_gets_the_floor_again(backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec) -> None:
    reconciled(kubernetes_api)
    backend.demand("default", spec, 3)
    backend.apply("default", spec)
    reconciled(kubernetes_api)
    backend.demand("default", spec, 3)
    assert floor(kubernetes_api) == "3"


@pytest.mark.parametrize("seen", [0, 1])
def test_a_revision_that_is_not_there_yet_gets_its_floor_later(
    backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec, seen: int
) -> None:
    backend.demand("default", spec, 1)
    reconciled(kubernetes_api, seen=seen)
    backend.demand("default", spec, 1)
    assert floor(kubernetes_api) is None
    reconciled(kubernetes_api)
    backend.demand("default", spec, 1)
    assert floor(kubernetes_api) == "1"


def test_a_busy_pod_is_pinned_and_released(backend: KnativeBackend, kubernetes_api: Any, eventually: Any) -> None:
    kubernetes_api.objects[POD] = {"metadata": {}}
    metadata = kubernetes_api.objects[POD]["metadata"]
    backend.pin("trainlet-default.digits-train-00002-x", True)
    eventually(lambda: metadata.get("annotations") == {"controller.kubernetes.io/pod-deletion-cost": "1000"})
    backend.pin("trainlet-default.digits-train-00002-x", False)
    eventually(lambda: metadata["annotations"] == {})


def test_a_pin_is_tried_again_until_kubernetes_answers(
    backend: KnativeBackend, kubernetes_api: Any, eventually: Any
) -> None:
    metadata = kubernetes_api.objects.setdefault(POD, {"metadata": {}})["metadata"]
    kubernetes_api.refuse = (500, "etcd is away")
    backend.pin("trainlet-default.digits-train-00002-x", True)
    eventually(lambda: len(kubernetes_api.calls) > 0)
    kubernetes_api.refuse = None
    eventually(lambda: metadata.get("annotations") == {"controller.kubernetes.io/pod-deletion-cost": "1000"})


def test_a_pod_that_is_gone_needs_no_pin(backend: KnativeBackend, kubernetes_api: Any, eventually: Any) -> None:
    kubernetes_api.objects[POD] = {"metadata": {}}
    backend.pin("trainlet-default.gone", True)
    backend.pin("trainlet-default.digits-train-00002-x", True)
    eventually(lambda: "annotations" in kubernetes_api.objects[POD]["metadata"])
    assert len(kubernetes_api.calls) == 2, "the first is not tried again"


def test_only_a_pod_can_be_pinned(backend: KnativeBackend) -> None:
    with pytest.raises(PlatformError, match="no pod of Knative"):
        backend.pin("worker-7", True)


def test_a_refusal_says_what_to_do(backend: KnativeBackend, kubernetes_api: Any, spec: FunctionSpec) -> None:
    kubernetes_api.refuse = (403, "services.serving.knative.dev is forbidden.")
    with pytest.raises(PlatformError, match=r"403\): services.serving.knative.dev is forbidden. Grant"):
        backend.apply("default", spec)


def test_an_api_that_is_not_there_is_named(backend: KnativeBackend, spec: FunctionSpec) -> None:
    backend._kubernetes._api.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(PlatformError, match="not reached"):
        backend.apply("default", spec)
