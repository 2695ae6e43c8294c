"""The Kubernetes API in plain JSON: get, list, apply, patch, delete, and errors that say what to do.

Objects are dictionaries, as in `objects`: the typed models of the official client know no custom resources, and reading
them costs more than they tell. The client's configuration, its TLS and its tokens are used as they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainlet.core.errors import PlatformError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

FIELD_MANAGER = "trainlet"
PLURALS = {
    "Broker": "brokers",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "EventPolicy": "eventpolicies",
    "Job": "jobs",
    "JobSink": "jobsinks",
    "Namespace": "namespaces",
    "NetworkPolicy": "networkpolicies",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PingSource": "pingsources",
    "Pod": "pods",
    "PodDefault": "poddefaults",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Revision": "revisions",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "Trigger": "triggers",
}
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON = "application/json"
_TIMEOUT_S = (3.0, 15.0)
_HINTS = {
    401: "The service account token is not accepted.",
    403: "Grant this verb to the service account that asks.",
    404: "Install Knative Serving and Eventing, and create the project's namespace.",
}


class Refused(PlatformError):
    """Raised when the Kubernetes API says no; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Kubernetes:
    """One Kubernetes API server. Safe to use from several threads.

    Without `api`, the configuration of the pod or of the user (KUBECONFIG) is used. Every call raises PlatformError when
    the server is not reached, and Refused when it says no.
    """

    def __init__(self, api: ApiClient | None = None) -> None:
        self._api = api or _configured()

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None when it is not there."""
        return self._call("GET", path, missing_ok=True)

    def select(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        """Return all objects at a path that match a label selector; none where the kind does not exist."""
        found: list[dict[str, Any]] = []
        query = [("limit", "500")] + ([("labelSelector", selector)] if selector else [])
        more = ""
        while True:
            page = self._call("GET", path, query=query + ([("continue", more)] if more else []), missing_ok=True)
            if page is None:
                return found
            found += page.get("items", [])
            more = page.get("metadata", {}).get("continue") or ""
            if not more:
                return found

    def apply(self, wanted: dict[str, Any], manager: str = FIELD_MANAGER) -> dict[str, Any]:
        """Make an object what it should be: server-side apply, as the only owner of the fields it names."""
        query = [("fieldManager", manager), ("force", "true")]
        found = self._call("PATCH", path_of(wanted), body=wanted, content_type=_APPLY, query=query)
        assert found is not None
        return found

    def merge(self, path: str, patch: dict[str, Any]) -> dict[str, Any] | None:
        """Change some fields; None when the object is gone."""
        return self._call("PATCH", path, body=patch, content_type=_MERGE, missing_ok=True)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object, or ask a question that is one (a review)."""
        found = self._call("POST", path, body=body, content_type=_JSON)
        assert found is not None
        return found

    def delete(self, path: str) -> None:
        """Delete an object and what belongs to it; one that is gone is no error."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        self._call("DELETE", path, body=body, content_type=_JSON, missing_ok=True)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str | None = None,
        query: list[tuple[str, str]] | None = None,
        missing_ok: bool = False,
    ) -> dict[str, Any] | None:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        headers = {"Accept": _JSON} | ({"Content-Type": content_type} if content_type else {})
        try:
            response = self._api.call_api(
                path,
                method,
                header_params=headers,
                query_params=query or [],
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=_TIMEOUT_S,
            )
            found: dict[str, Any] = json.loads(response.data)
        except ApiException as error:
            if error.status == 404 and missing_ok:
                return None
            raise Refused(error.status, _refusal(method, path, error)) from error
        except (HTTPError, ValueError) as error:
            raise PlatformError(
                f"The Kubernetes API was not reached for {method} {path}: {error}. It is tried again."
            ) from error
        return found


def path_of(wanted: dict[str, Any]) -> str:
    """Return the path of an object."""
    metadata = wanted["metadata"]
    folder = path(wanted["apiVersion"], metadata.get("namespace"), PLURALS[wanted["kind"]])
    return f"{folder}/{metadata['name']}"


def path(api_version: str, namespace: str | None, plural: str) -> str:
    """Return the path of all objects of a kind, in a namespace or (None) in the cluster."""
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    return f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{namespace}/{plural}"


def _configured() -> ApiClient:
    from kubernetes import client, config

    try:
        config.load_config()
    except config.ConfigException as error:
        raise PlatformError(
            f"There is no Kubernetes configuration: {error}. Run in a pod with a service account, or set KUBECONFIG."
        ) from error
    return client.ApiClient()


def _refusal(method: str, path: str, error: Any) -> str:
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    hint = _HINTS.get(error.status, "Correct the function's options, or the cluster's settings.")
    return f"Kubernetes refused {method} {path} ({error.status}): {message} {hint}"
