"""Tokens of service accounts, as Kubernetes reviews them: a worker's pod, a sender of events, or nobody."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core.errors import AccessError
from trainlet_knative.clusters import Cluster
from trainlet_knative.reviews import PodIdentity, SenderIdentity, TokenReviewer

POD = {"authentication.kubernetes.io/pod-name": ["digits-abc"]}


class Kubernetes:
    """Answers one review as the API server does: of the audiences asked for, those that the token has."""

    def __init__(self, username: str, audiences: list[str], extra: dict[str, list[str]]) -> None:
        self._user = {"username": username, "extra": extra}
        self._audiences = audiences

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        common = [one for one in body["spec"]["audiences"] if one in self._audiences]
        if not common:
            return {"status": {"authenticated": False, "error": "the audiences differ"}}
        return {"status": {"authenticated": True, "user": self._user, "audiences": common}}


def review(
    cluster: Cluster, audiences: list[str], extra: dict[str, list[str]], name: str = "trainlet-vision:digits"
) -> Any:
    kubernetes: Any = Kubernetes(f"system:serviceaccount:{name}", audiences, extra)
    return TokenReviewer(cluster, kubernetes).review("a.b.c")


def test_S2_a_trigger_of_a_projects_namespace_brings_events_in_for_that_project(cluster: Cluster) -> None:
    assert review(cluster, ["trainlet-events"], {}) == SenderIdentity("vision", "trainlet-vision/digits")


def test_S2_what_a_token_is_meant_for_decides_what_it_may_do(cluster: Cluster) -> None:
    assert isinstance(review(cluster, ["trainlet-api"], POD), PodIdentity)
    assert isinstance(review(cluster, ["trainlet-events"], POD), SenderIdentity)
    for audiences, extra in ((["trainlet-api"], {}), (["vault"], POD), ([], {})):
        with pytest.raises(AccessError):
            review(cluster, audiences, extra)


@pytest.mark.parametrize("name", ["default:digits", "kube-system:digits", "trainlet-vision:", "trainlet-:digits"])
def test_S2_a_service_account_of_no_projects_namespace_brings_nothing_in(cluster: Cluster, name: str) -> None:
    with pytest.raises(AccessError):
        review(cluster, ["trainlet-events"], {}, name)
