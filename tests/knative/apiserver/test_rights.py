"""What the training API may do on a cluster, and above all what it may not (S2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainlet.core.errors import AccessError
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet_functions.worker import senders
from trainlet_knative import installs
from trainlet_knative.backend import KnativeBackend
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, Refused
from trainlet_knative.objects import all_objects, trigger_objects
from trainlet_knative.reviews import ClientIdentity, PodIdentity, SenderIdentity, TokenReviewer, UnknownNamespace
from trainlet_knative.tokens import OwnTokens

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def refused(call: Any, *arguments: Any) -> str:
    with pytest.raises(Refused) as error:
        call(*arguments)
    assert error.value.status == 403, str(error.value)
    return str(error.value)


def test_S2_secrets_and_config_of_a_project_cannot_be_read(installed: Kubernetes, project: str) -> None:
    for plural in ("secrets", "configmaps"):
        refused(installed.select, f"/api/v1/namespaces/trainlet-{project}/{plural}")
        refused(installed.get, f"/api/v1/namespaces/trainlet-{project}/{plural}/hf-token")


def test_S2_namespaces_that_are_no_projects_are_out_of_reach(
    installed: Kubernetes, cluster: Cluster, spec: FunctionSpec
) -> None:
    for namespace in ("kube-system", "default", "trainlet"):
        refused(installed.select, f"/api/v1/namespaces/{namespace}/pods")
        elsewhere = cluster.model_copy(update={"namespace": namespace, "open_events": True})
        watches = (Watch(name="a", filters=[{"exact": {"type": "t"}}]), Watch(name="b", when="@daily"))
        made = [one for watch in watches for one in trigger_objects(elsewhere, "default", watch)]
        assert {one["kind"] for one in made} == {"Trigger", "PingSource"}
        for wanted in (*all_objects(elsewhere, "default", spec), *made):
            assert "is forbidden" in refused(installed.apply, wanted)


def test_a_project_without_a_namespace_is_told_how_to_get_one(
    installed: Kubernetes, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    backend = KnativeBackend(cluster, installed)
    with pytest.raises(Refused, match=f"trainlet-{project}-new .*trainlet install --project {project}-new"):
        backend.apply(f"{project}-new", spec)


def test_no_pod_is_started_or_removed_by_hand(installed: Kubernetes, project: str) -> None:
    pods = f"/api/v1/namespaces/trainlet-{project}/pods"
    refused(installed.create, pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": {}})
    refused(installed.delete, f"{pods}/someones")
    refused(installed.create, f"{pods}/someones/eviction", {"apiVersion": "policy/v1", "kind": "Eviction"})


def test_no_rights_can_be_given_or_borrowed(installed: Kubernetes, project: str) -> None:
    namespace = f"trainlet-{project}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role = {"apiVersion": RBAC[6:], "kind": "Role", "metadata": {"name": "more"}, "rules": [rule]}
    refused(installed.create, f"{RBAC}/namespaces/{namespace}/roles", role)
    refused(installed.merge, f"{RBAC}/namespaces/{namespace}/roles/trainlet-api", {"rules": [rule]})
    refused(installed.create, f"{RBAC}/clusterrolebindings", {**role, "kind": "ClusterRoleBinding"})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    refused(installed.create, f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", request)
    refused(installed.create, "/api/v1/namespaces", {"metadata": {"name": f"more-{project}"}})


def test_a_workers_account_may_do_nothing(
    installed: Kubernetes, server: Any, cluster: Cluster, spec: FunctionSpec, project: str
) -> None:
    for wanted in all_objects(cluster, project, spec):
        installed.apply(wanted)
    worker = server.as_account(f"trainlet-{project}", spec.name)
    refused(worker.select, f"/api/v1/namespaces/trainlet-{project}/pods")
    refused(worker.select, "/apis/serving.knative.dev/v1/services")
    refused(worker.create, "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})


def pod_token(server: Any, namespace: str, account: str, *, audience: str = "trainlet-api") -> tuple[str, str]:
    """Return the token that the kubelet would mount into a pod, and the pod's name."""
    spec = {"serviceAccountName": account, "containers": [{"name": "worker", "image": "worker:1"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{account}-"}, "spec": spec}
    pod = server.admin.create(f"/api/v1/namespaces/{namespace}/pods", body)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    request = {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": bound}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = server.admin.create(path, {"spec": request, "kind": "TokenRequest",
                                       "apiVersion": "authentication.k8s.io/v1"})  # fmt: skip
    return str(token["status"]["token"]), str(pod["name"])


@pytest.fixture
def deployed(installed: Kubernetes, cluster: Cluster, spec: FunctionSpec, project: str) -> str:
    for wanted in all_objects(cluster, project, spec):
        installed.apply(wanted)
    return f"trainlet-{project}"


def test_S2_a_pods_token_says_which_functions_worker_it_is(
    installed: Kubernetes, server: Any, cluster: Cluster, spec: FunctionSpec, project: str, deployed: str
) -> None:
    token, pod = pod_token(server, deployed, spec.name)
    found = TokenReviewer(cluster, installed).review(token)
    assert found == PodIdentity(project, spec.name, f"{deployed}.{pod}")


def test_S2_a_pod_of_kubeflow_acts_for_the_project_of_its_namespace_and_no_other_namespace_does(
    installed: Kubernetes, server: Any, cluster: Cluster, project: str
) -> None:
    for namespace in (f"{project}-a", f"{project}-b"):
        server.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, "test")
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        server.admin.apply({**account, "metadata": {"name": "default-editor", "namespace": namespace}}, "test")
    mapped = cluster.model_copy(update={"kubeflow_namespaces": {f"{project}-a": "vision"}})
    reviewer = TokenReviewer(mapped, installed)
    token, pod = pod_token(server, f"{project}-a", "default-editor")
    assert reviewer.review(token) == ClientIdentity("vision", f"{project}-a.{pod}")
    renewed, _ = pod_token(server, f"{project}-a", "default-editor")
    assert renewed != token and reviewer.review(renewed).project == "vision"
    other, _ = pod_token(server, f"{project}-b", "default-editor")
    with pytest.raises(UnknownNamespace, match=f"kubeflow_namespaces: {{{project}-b: PROJECT}}"):
        reviewer.review(other)
    of_kfp, _ = pod_token(server, f"{project}-a", "default-editor", audience="pipelines.kubeflow.org")
    with pytest.raises(AccessError, match="does not accept"):
        reviewer.review(of_kfp)


def test_S2_a_token_for_somebody_else_or_of_no_pod_is_refused(
    installed: Kubernetes, server: Any, cluster: Cluster, spec: FunctionSpec, project: str, deployed: str
) -> None:
    reviewer = TokenReviewer(cluster, installed)
    other, _ = pod_token(server, deployed, spec.name, audience="vault")
    with pytest.raises(AccessError):
        reviewer.review(other)
    path = f"/api/v1/namespaces/{deployed}/serviceaccounts/{spec.name}/token"
    bare = server.admin.create(path, {"spec": {"audiences": ["trainlet-api"]}, "kind": "TokenRequest",
                                      "apiVersion": "authentication.k8s.io/v1"})  # fmt: skip
    with pytest.raises(AccessError, match="is no pod"):
        reviewer.review(bare["status"]["token"])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": project, "namespace": "default"}}
    server.admin.apply(account, "test")
    elsewhere, _ = pod_token(server, "default", project)
    with pytest.raises(UnknownNamespace, match="The namespace default"):
        reviewer.review(elsewhere)
    with pytest.raises(AccessError, match="does not accept"):
        reviewer.review("a.b.c")


def test_S2_a_token_of_a_trigger_brings_events_in_and_asks_for_no_work(
    installed: Kubernetes, server: Any, cluster: Cluster, spec: FunctionSpec, project: str, deployed: str
) -> None:
    path = f"/api/v1/namespaces/{deployed}/serviceaccounts/{spec.name}/token"
    token = server.admin.create(path, {"spec": {"audiences": ["trainlet-events"]}, "kind": "TokenRequest",
                                       "apiVersion": "authentication.k8s.io/v1"})  # fmt: skip
    found = TokenReviewer(cluster, installed).review(token["status"]["token"])
    assert found == SenderIdentity(project, f"{deployed}/{spec.name}")


def test_S2_a_pod_that_is_gone_has_no_token_any_more(
    installed: Kubernetes, server: Any, cluster: Cluster, spec: FunctionSpec, deployed: str, eventually_ready: Any
) -> None:
    token, pod = pod_token(server, deployed, spec.name)
    server.admin._call(
        "DELETE", f"/api/v1/namespaces/{deployed}/pods/{pod}", body={"gracePeriodSeconds": 0},
        content_type="application/json",
    )  # fmt: skip

    def refused_now() -> bool:
        try:
            TokenReviewer(cluster, installed).review(token)
        except AccessError as error:
            return "does not accept" in str(error)
        return False

    eventually_ready(refused_now)  # the server hears of the pod's end a moment later


@pytest.fixture
def guarded(server: Any, settings: Path, project: str) -> Kubernetes:
    """Install with OIDC, and return the connection that the API itself would have."""
    settings.write_text(settings.read_text() + "oidc: true\n")
    for _ in installs.apply(server.admin, installs.objects(settings, [project], image="registry.example/api:1")):
        pass
    return server.as_account("trainlet", "trainlet-api")


def test_with_oidc_the_api_gets_tokens_of_its_own_account_and_of_no_other(
    guarded: Kubernetes, server: Any, settings: Path, project: str, spec: FunctionSpec
) -> None:
    cluster = Cluster.load(settings)
    token = OwnTokens(guarded).get(cluster.broker_audience(project))
    asked = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
             "spec": {"token": token, "audiences": [cluster.broker_audience(project)]}}  # fmt: skip
    status = server.admin.create("/apis/authentication.k8s.io/v1/tokenreviews", asked)["status"]
    (policy,) = guarded.select(f"/apis/eventing.knative.dev/v1alpha1/namespaces/trainlet-{project}/eventpolicies")
    assert policy["spec"]["from"] == [{"sub": status["user"]["username"]}], "the one that the broker lets in"
    for namespace in ("trainlet", f"trainlet-{project}", "kube-system"):
        refused(guarded.create, f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": ["x"]}})  # fmt: skip


def test_S1_with_oidc_only_the_functions_own_trigger_brings_events(
    guarded: Kubernetes, server: Any, settings: Path, project: str, spec: FunctionSpec
) -> None:
    """Eventing's controller is not here: the Trigger's account is made, and named in its status, by hand."""
    cluster = Cluster.load(settings).model_copy(update={"public_key": "cHVibGljIGtleQ=="})
    for wanted in all_objects(cluster, project, spec):
        guarded.apply(wanted)
    namespace = f"trainlet-{project}"
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for name in ("its-oidc", "another"):
        server.admin.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    trigger = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers/{spec.name}"
    server.admin.merge(trigger, {"status": {"auth": {"serviceAccountName": "its-oidc"}}})

    def token(account: str, audience: str) -> str:
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": [audience]}}
        return str(server.admin.create(f"{accounts}/{account}/token", asked)["status"]["token"])

    mine = f"trainlet.dev/function/{namespace}/{spec.name}"
    reviewer = TokenReviewer(cluster, guarded)
    reviewer.review_trigger(project, spec.name, token("its-oidc", mine))
    assert senders.token_of({"authorization": f"Bearer {token('its-oidc', mine)}"}, mine)
    for account, audience in (("another", mine), ("its-oidc", "trainlet.dev/function/other/f"), (spec.name, mine)):
        with pytest.raises(AccessError):
            reviewer.review_trigger(project, spec.name, token(account, audience))
