"""With OIDC the training API shows each broker a token of its own, and a worker's events are those of its Trigger."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from kubernetes import client

from trainlet.core.errors import AccessError, PlatformError
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes
from trainlet_knative.reviews import TokenReviewer
from trainlet_knative.sinks import BrokerSink
from trainlet_knative.tokens import OwnTokens

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
TOKENS = "/api/v1/namespaces/trainlet/serviceaccounts/trainlet-api/token"
TRIGGER = "/apis/eventing.knative.dev/v1/namespaces/trainlet-vision/triggers/train"
AUDIENCE = "trainlet.dev/function/trainlet-vision/train"


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 10**15

    def boot_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def kubernetes(kubernetes_api: Any) -> Kubernetes:
    kubernetes_api.objects[WHO] = {"status": {"userInfo": {"username": "system:serviceaccount:trainlet:trainlet-api"}}}
    kubernetes_api.objects[TOKENS] = {"spec": {"expirationSeconds": 600}, "status": {"token": "first"}}
    return Kubernetes(client.ApiClient(client.Configuration(host=kubernetes_api.url)))


def broker(kubernetes: Kubernetes, cluster: Cluster, seen: list[httpx.Request], status: int = 202) -> BrokerSink:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status)

    return BrokerSink(
        cluster.broker_url,
        audience_of=cluster.broker_audience,
        tokens=OwnTokens(kubernetes),
        http=httpx.Client(transport=httpx.MockTransport(answer)),
    )


def test_a_broker_is_shown_a_token_that_is_made_for_it(kubernetes: Kubernetes, cluster: Cluster) -> None:
    seen: list[httpx.Request] = []
    broker(kubernetes, cluster, seen).deliver({"ce-id": "1"}, b"{}", "vision", "train")
    assert seen[0].headers["authorization"] == "Bearer first"
    assert cluster.broker_audience("vision") == "eventing.knative.dev/broker/trainlet-vision/default"


def test_a_token_is_kept_for_most_of_the_life_that_the_cluster_gives_it(
    kubernetes: Kubernetes, kubernetes_api: Any
) -> None:
    clock = HandClock()
    tokens = OwnTokens(kubernetes, clock=clock)  # type: ignore[arg-type]
    assert [tokens.get("a") for _ in range(3)] == ["first"] * 3
    kubernetes_api.objects[TOKENS]["status"]["token"] = "second"
    clock.now_ns += 470 * 10**9
    assert tokens.get("a") == "first"
    clock.now_ns += 20 * 10**9
    assert tokens.get("a") == "second"
    assert [call.path for call in kubernetes_api.calls] == [WHO, TOKENS, TOKENS]


def test_a_broker_that_refuses_a_token_gets_another_one_next_time(
    kubernetes: Kubernetes, cluster: Cluster, kubernetes_api: Any
) -> None:
    seen: list[httpx.Request] = []
    refusing = broker(kubernetes, cluster, seen, 401)
    with pytest.raises(PlatformError, match="oidc: true"):
        refusing.deliver({}, b"{}", "vision", "train")
    kubernetes_api.objects[TOKENS]["status"]["token"] = "second"
    with pytest.raises(PlatformError):
        refusing.deliver({}, b"{}", "vision", "train")
    assert [request.headers["authorization"] for request in seen] == ["Bearer first", "Bearer second"]


def test_who_is_no_service_account_has_no_token_to_show(kubernetes: Kubernetes, kubernetes_api: Any) -> None:
    kubernetes_api.objects[WHO] = {"status": {"userInfo": {"username": "admin"}}}
    with pytest.raises(PlatformError, match="admin to Kubernetes, which is no service account"):
        OwnTokens(kubernetes).get("a")


def says(kubernetes_api: Any, sender: str, **changes: Any) -> None:
    user = {"username": sender}
    kubernetes_api.objects[REVIEWS] = {
        "status": {"authenticated": True, "audiences": [AUDIENCE], "user": user, **changes}
    }


def trigger_of(kubernetes_api: Any, account: str | None) -> None:
    auth = {} if account is None else {"auth": {"serviceAccountName": account}}
    kubernetes_api.objects[TRIGGER] = {"status": auth}


def test_an_event_of_the_functions_own_trigger_is_taken_and_the_answer_kept_for_a_while(
    kubernetes: Kubernetes, kubernetes_api: Any, cluster: Cluster
) -> None:
    says(kubernetes_api, "system:serviceaccount:trainlet-vision:train-oidc")
    trigger_of(kubernetes_api, "train-oidc")
    reviewer = TokenReviewer(cluster, kubernetes)
    for _ in range(3):
        reviewer.review_trigger("vision", "train", "a.b.c")
    assert [call.path for call in kubernetes_api.calls] == [REVIEWS, TRIGGER]


@pytest.mark.parametrize(
    ("sender", "account", "review", "said"),
    [
        ("system:serviceaccount:trainlet-vision:other-oidc", "train-oidc", {}, "Trigger of train is trainlet-vision/train"),
        ("system:serviceaccount:elsewhere:train-oidc", "train-oidc", {}, "come through its own Trigger"),
        ("system:serviceaccount:trainlet-vision:train-oidc", None, {}, "Eventing gave it no identity"),
        ("system:serviceaccount:trainlet-vision:", None, {}, "Eventing gave it no identity"),
        ("x", "train-oidc", {"authenticated": False, "error": "expired"}, "not one for .*expired"),
        ("x", "train-oidc", {"audiences": ["https://kubernetes.default"]}, f"not one for {AUDIENCE}"),
    ],
)  # fmt: skip
def test_S1_an_event_of_anybody_else_is_refused(
    kubernetes: Kubernetes,
    kubernetes_api: Any,
    cluster: Cluster,
    sender: str,
    account: str | None,
    review: Any,
    said: str,
) -> None:
    says(kubernetes_api, sender, **review)
    trigger_of(kubernetes_api, account)
    with pytest.raises(AccessError, match=said):
        TokenReviewer(cluster, kubernetes).review_trigger("vision", "train", "a.b.c")
