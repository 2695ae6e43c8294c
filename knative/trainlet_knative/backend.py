"""Functions as Knative Services: apply their objects, state the demand, pin busy pods.

Knative decides how many pods run; this backend tells it what the training API knows. The *demand floor* is the newest
Revision's `min-scale`: concurrency alone is a slow and biased signal for tasks of hours. The *pin* is Kubernetes'
deletion cost, without which a scale-down may well take the busy pod. It must not know what runs in the pods.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.errors import PlatformError
from trainlet.core.specs import FunctionSpec
from trainlet_knative import objects

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_LOG = logging.getLogger(__name__)
FIELD_MANAGER = "trainlet"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
BUSY_COST = "1000"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_TIMEOUT_S = (3.0, 15.0)
_RECHECK_NS = 30_000_000_000


class KnativeBackend:
    """The functions of one cluster.

    Without `api`, the configuration of the pod or of the user is used.
    """

    def __init__(
        self,
        cluster: objects.Cluster,
        *,
        api: ApiClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._api = api or _configured()
        self._clock = clock or SystemClock()
        self._floors: dict[tuple[str, str], tuple[int, int]] = {}  # (namespace, function) -> workers, when
        self._lock = threading.Lock()

    def apply(self, project: str, spec: FunctionSpec) -> None:
        """Make the function's objects what they should be, by server-side apply."""
        namespace = self._cluster.namespace_of(project)
        for one in objects.all_objects(self._cluster, project, spec):
            path = f"{_path(one['apiVersion'], namespace, objects.PLURALS[one['kind']])}/{one['metadata']['name']}"
            query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
            self._call("PATCH", path, body=one, content_type=_APPLY, query=query)
        with self._lock:
            self._floors.pop((namespace, spec.name), None)

    def demand(self, project: str, spec: FunctionSpec, workers: int) -> None:
        """Set the floor of the newest Revision; a Revision that is not there yet gets it at the next call."""
        workers = min(workers, spec.max_workers)
        key = (self._cluster.namespace_of(project), spec.name)
        now_ns = self._clock.boot_ns()
        with self._lock:
            known = self._floors.get(key)
        if known is not None and known[0] == workers and now_ns - known[1] < _RECHECK_NS:
            return
        namespace, name = key
        service = self._call("GET", f"{_path('serving.knative.dev/v1', namespace, 'services')}/{name}", missing_ok=True)
        revision = None if service is None else _newest_revision(service)
        if revision is None:
            _LOG.info("function %s in %s has no ready description yet; its demand is stated later", name, namespace)
            return
        path = f"{_path('serving.knative.dev/v1', namespace, 'revisions')}/{revision}"
        patch = {"metadata": {"annotations": {objects.MIN_SCALE: str(workers)}}}
        if self._call("PATCH", path, body=patch, content_type=_MERGE, missing_ok=True) is not None:
            with self._lock:
                self._floors[key] = (workers, now_ns)

    def pin(self, worker: str, busy: bool) -> None:
        """Protect the pod of a worker (`<namespace>.<pod>`) from scale-down, or release it; a pod that is gone is no error."""
        namespace, _, pod = worker.partition(".")
        if not pod:
            raise PlatformError(f"Worker {worker!r} is no pod of Knative; its id should be <namespace>.<pod>.")
        patch = {"metadata": {"annotations": {DELETION_COST: BUSY_COST if busy else None}}}
        self._call("PATCH", f"{_path('v1', namespace, 'pods')}/{pod}", body=patch, content_type=_MERGE, missing_ok=True)

    def close(self) -> None:
        """Close the connections; the pods are Knative's and go on."""
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
        """Call the Kubernetes API and return the object; None when it is missing and may be."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content_type else {})
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
        except ApiException as error:
            if error.status == 404 and missing_ok:
                return None
            raise PlatformError(_refused(method, path, error)) from error
        except HTTPError as error:
            raise PlatformError(
                f"The Kubernetes API was not reached for {method} {path}: {error}. It is tried again."
            ) from error
        found: dict[str, Any] = json.loads(response.data)
        return found


def _configured() -> ApiClient:
    from kubernetes import client, config

    try:
        config.load_config()
    except config.ConfigException as error:
        raise PlatformError(
            f"There is no Kubernetes configuration: {error}. Run in a pod with a service account, or set KUBECONFIG."
        ) from error
    return client.ApiClient()


def _path(api_version: str, namespace: str, plural: str) -> str:
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}"


def _newest_revision(service: dict[str, Any]) -> str | None:
    """Return the newest Revision, or None while Knative has not seen the newest spec."""
    status = service.get("status", {})
    if status.get("observedGeneration") != service["metadata"].get("generation"):
        return None
    name = status.get("latestCreatedRevisionName")
    return str(name) if name else None


def _refused(method: str, path: str, error: Any) -> str:
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    hints = {
        401: "The API's service account token is not accepted.",
        403: "Grant the training API's service account this verb.",
        404: "Install Knative Serving and Eventing, and create the project's namespace.",
    }
    hint = hints.get(error.status, "Correct the function's options, or the cluster's settings.")
    return f"Kubernetes refused {method} {path} ({error.status}): {message} {hint}"
