"""A real kube-apiserver with Knative Serving's types, and an account that has only the rights that our roles give.

`TRAINLET_TEST_ENVTEST` is the path of an admin's kubeconfig; without it these tests are skipped. There are no nodes, no
controllers and no Knative: what is tested is schema, ownership and rights. Eventing's types are registered here, open to
any field.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainlet_knative import installs
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, Refused

KUBECONFIG = os.environ.get("TRAINLET_TEST_ENVTEST")
EVENTING = [
    ("eventing.knative.dev", "v1", "Broker", "brokers"),
    ("eventing.knative.dev", "v1", "Trigger", "triggers"),
    ("eventing.knative.dev", "v1alpha1", "EventPolicy", "eventpolicies"),
    ("sinks.knative.dev", "v1alpha1", "JobSink", "jobsinks"),
    ("sources.knative.dev", "v1", "PingSource", "pingsources"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a server where there is none, and say how to get one."""
    reason = "TRAINLET_TEST_ENVTEST names no kubeconfig of a kube-apiserver with Knative Serving's types"
    for item in items:
        if Path(__file__).parent in item.path.parents and not KUBECONFIG:
            item.add_marker(pytest.mark.skip(reason=reason))


def open_type(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """Return a definition of a type that takes any field."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }


@dataclass
class Server:
    """The server, as its admin sees it."""

    admin: Kubernetes
    _configuration: Any

    def as_account(self, namespace: str, name: str) -> Kubernetes:
        """Return a connection with a service account's own token."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return self.with_token(self.admin.create(path, body)["status"]["token"])

    def with_token(self, token: str) -> Kubernetes:
        """Return a connection with a bearer token and nothing else."""
        from kubernetes import client

        plain = client.Configuration(host=self._configuration.host)
        plain.ssl_ca_cert = self._configuration.ssl_ca_cert
        plain.api_key = {"authorization": token}
        plain.api_key_prefix = {"authorization": "Bearer"}
        return Kubernetes(client.ApiClient(plain))


@pytest.fixture(scope="session")
def server(eventually_ready: Callable[[Callable[[], object]], None]) -> Server:
    """Return the server, with Eventing's types."""
    from kubernetes import config

    assert KUBECONFIG is not None
    api = config.new_client_from_config(config_file=KUBECONFIG)
    admin = Kubernetes(api)
    for definition in (open_type(*one) for one in EVENTING):
        try:
            admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        except Refused as error:
            if error.status != 409:  # there already, from before or from the tests beside these
                raise
    for group, version, _, plural in EVENTING:
        eventually_ready(lambda at=f"/apis/{group}/{version}/namespaces/default/{plural}": admin.get(at))
    return Server(admin, api.configuration)


@pytest.fixture(scope="session")
def eventually_ready() -> Callable[[Callable[[], object]], None]:
    """Return a helper that waits until the server serves a new type."""
    import time

    def wait(condition: Callable[[], object], within_s: float = 30.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "the server did not take up a type in time"
            time.sleep(0.05)

    return wait


@pytest.fixture
def project() -> str:
    """Return the name of a project that nobody else uses: nothing removes a namespace of this server."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Return the packaged settings as an admin's file."""
    path = tmp_path / "cluster.yaml"
    path.write_text(installs.example_settings())
    (tmp_path / "gpus.yaml").write_text(installs.example_catalogue())
    return path


@pytest.fixture
def installed(server: Server, settings: Path, project: str) -> Kubernetes:
    """Install the API and the project, and return the connection that the API itself would have."""
    for _ in installs.apply(server.admin, installs.objects(settings, [project], image="registry.example/api:1")):
        pass
    return server.as_account("trainlet", "trainlet-api")


@pytest.fixture
def cluster(settings: Path) -> Cluster:
    """Return those settings as the API reads them."""
    return Cluster.load(settings).model_copy(update={"public_key": "cHVibGljIGtleQ=="})
