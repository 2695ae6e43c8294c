"""Whose a pod's token is: a worker of a function, or a pod of Kubeflow whose namespace has a project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from imitation.kubernetes_api import KubernetesApi

from trainlet.core.clocks import ManualClock
from trainlet.core.errors import AccessError, PlatformError
from trainlet_knative import reviews
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes
from trainlet_knative.reviews import ClientIdentity, PodIdentity, TokenReviewer, UnknownNamespace


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    made = KubernetesApi()
    yield made
    made.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reviewer(api: KubernetesApi, cluster: Cluster, clock: ManualClock, tmp_path: Path) -> TokenReviewer:
    from kubernetes import config

    kubernetes = Kubernetes(config.new_client_from_config_dict(json.loads(api.kubeconfig())))
    mapped = cluster.model_copy(update={"kubeflow_namespaces": {"team-a": "vision"}})
    return TokenReviewer(mapped, kubernetes, clock=clock)


def test_a_pod_of_a_step_is_a_worker(api: KubernetesApi, reviewer: TokenReviewer) -> None:
    token = api.token("trainlet-vision", "digits-train", "pod-1")
    assert reviewer.review(token) == PodIdentity("vision", "digits-train", "trainlet-vision.pod-1")


def test_a_pod_of_kubeflow_acts_for_the_project_of_its_namespace(api: KubernetesApi, reviewer: TokenReviewer) -> None:
    token = api.token("team-a", "default-editor", "pod-1")
    assert reviewer.review(token) == ClientIdentity("vision", "team-a.pod-1")


def test_S2_a_namespace_without_a_project_is_refused_with_what_to_add(
    api: KubernetesApi, reviewer: TokenReviewer
) -> None:
    with pytest.raises(UnknownNamespace) as error:
        reviewer.review(api.token("team-b", "default-editor", "pod-1"))
    assert "`kubeflow_namespaces: {team-b: PROJECT}` to cluster.yaml" in str(error.value)
    assert "of pod pod-1, service account default-editor" in str(error.value)


@pytest.mark.parametrize("namespace", ["team-a", "trainlet-vision"])
def test_S2_a_token_for_somebody_else_is_refused(namespace: str, api: KubernetesApi, reviewer: TokenReviewer) -> None:
    with pytest.raises(AccessError, match="does not accept the pod's token: token audiences"):
        reviewer.review(api.token(namespace, "a", "pod-1", audience="pipelines.kubeflow.org"))


def test_S2_a_token_of_an_account_that_is_no_pod_is_refused(api: KubernetesApi, reviewer: TokenReviewer) -> None:
    with pytest.raises(AccessError, match="is no pod"):
        reviewer.review(api.token("team-a", "default-editor", ""))


def test_an_answer_is_good_for_a_while_when_kubernetes_is_away(
    api: KubernetesApi, reviewer: TokenReviewer, clock: ManualClock
) -> None:
    token = api.token("team-a", "default-editor", "pod-1")
    reviewer.review(token)
    api.away = True
    clock.advance(reviews.STALE_S - 1)
    assert reviewer.review(token).project == "vision"
    clock.advance(2)
    with pytest.raises(PlatformError):
        reviewer.review(token)


def test_a_pod_that_is_gone_is_noticed_when_its_answer_is_old(
    api: KubernetesApi, reviewer: TokenReviewer, clock: ManualClock
) -> None:
    token = api.token("team-a", "default-editor", "pod-1")
    reviewer.review(token)
    api.tokens.clear()
    clock.advance(reviews.FRESH_S + 1)
    with pytest.raises(AccessError, match="does not accept"):
        reviewer.review(token)
