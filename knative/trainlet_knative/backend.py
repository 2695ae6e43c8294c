"""Functions as Knative Services: apply their objects, state the demand, pin busy pods, keep everything in order.

Knative decides how many pods run; this backend tells it what the training API knows. The *demand floor* is the newest
Revision's `min-scale`: concurrency alone is a slow and biased signal for tasks of hours. The *pin* is Kubernetes'
deletion cost, without which a scale-down may well take the busy pod. It must not know what runs in the pods.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.errors import PlatformError, TrainletError
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet.core.wire import Deployment
from trainlet_knative import deployments, objects
from trainlet_knative.connections import FIELD_MANAGER, PLURALS, Kubernetes, Refused, path, path_of
from trainlet_knative.pins import Pins

_LOG = logging.getLogger(__name__)
_RECHECK_NS = 30_000_000_000
_SERVING = "serving.knative.dev/v1"
_JOB_SINK = "sinks.knative.dev/v1alpha1"
_TRIGGER = ("eventing.knative.dev/v1", "Trigger")
OURS = ",".join(f"{name}={value}" for name, value in objects.MANAGED_BY.items())
SELECTOR = f"{OURS},{objects.FUNCTION}"
_KINDS = {  # by the label that says what an object belongs to
    objects.FUNCTION: {
        ("v1", "ServiceAccount"),
        (_SERVING, "Service"),
        _TRIGGER,
        (_JOB_SINK, "JobSink"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("eventing.knative.dev/v1alpha1", "EventPolicy"),
    },
    objects.TRIGGER: {_TRIGGER, ("sources.knative.dev/v1", "PingSource")},
}


class KnativeBackend:
    """The functions of one cluster."""

    def __init__(self, cluster: objects.Cluster, kubernetes: Kubernetes, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._kubernetes = kubernetes
        self._clock = clock or SystemClock()
        self._floors: dict[tuple[str, str], tuple[int, int]] = {}  # (namespace, function) -> workers, when
        self._lock = threading.Lock()
        self._pins = Pins(kubernetes)
        self.failed_applies = 0

    def apply(self, project: str, spec: FunctionSpec) -> None:
        """Make the function's objects what they should be, by server-side apply."""
        self._apply(project, objects.all_objects(self._cluster, project, spec))
        with self._lock:
            self._floors.pop((self._cluster.namespace_of(project), spec.name), None)

    def watch(self, project: str, watch: Watch) -> None:
        """Make a trigger's objects what they should be; what it does not need any more goes with the next round."""
        self._apply(project, objects.trigger_objects(self._cluster, project, watch))

    def _apply(self, project: str, wanted: Sequence[objects.Object]) -> None:
        try:
            for one in wanted:
                self._kubernetes.apply(one)
        except PlatformError as error:
            self.failed_applies += 1
            if isinstance(error, Refused) and error.status in (
                403,
                404,
            ):  # without its Role a namespace is not even missed
                raise Refused(error.status, f"{error} {self._no_home(project)}") from error
            raise

    def demand(self, project: str, spec: FunctionSpec, workers: int) -> None:
        """Set the floor of the newest Revision; a Revision that is not there yet gets it at the next call."""
        if spec.backend == "job":
            return  # each event makes its own Job
        workers = min(workers, spec.max_workers)
        namespace, name = key = (self._cluster.namespace_of(project), spec.name)
        now_ns = self._clock.boot_ns()
        with self._lock:
            known = self._floors.get(key)
        if known is not None and known[0] == workers and now_ns - known[1] < _RECHECK_NS:
            return
        service = self._kubernetes.get(f"{path(_SERVING, namespace, 'services')}/{name}")
        revision = None if service is None else _newest_revision(service)
        if revision is None:
            _LOG.info("function %s in %s has no ready description yet; its demand is stated later", name, namespace)
            return
        if self._set_floor(f"{path(_SERVING, namespace, 'revisions')}/{revision}", workers):
            with self._lock:
                self._floors[key] = (workers, now_ns)

    def keep(
        self,
        functions: Sequence[tuple[str, FunctionSpec]],
        watches: Sequence[tuple[str, Watch]],
        projects: Sequence[str],
    ) -> None:
        """Repair objects that were changed or removed, and remove those of functions and triggers not named here.

        Only what carries our labels and was applied by us is ever removed. A floor that an earlier process left is taken
        back. One function that fails leaves the others unharmed; the first failure is raised at the end.
        """
        failures: list[TrainletError] = []
        wanted: dict[str, dict[str, Any]] = {}
        untouched: set[tuple[str, str]] = set()
        for project, spec in functions:
            try:
                wanted |= {path_of(one): one for one in objects.all_objects(self._cluster, project, spec)}
            except TrainletError as error:  # the cluster's settings changed and cannot describe it any more
                untouched.add((self._cluster.namespace_of(project), spec.name))
                failures.append(error)
        for project, watch in watches:
            wanted |= {path_of(one): one for one in objects.trigger_objects(self._cluster, project, watch)}
        for namespace in sorted({self._cluster.namespace_of(project) for project in projects}):
            try:
                here = {at: one for at, one in wanted.items() if one["metadata"].get("namespace") == namespace}
                self._keep_namespace(namespace, here, {name for of, name in untouched if of == namespace})
            except PlatformError as error:
                failures.append(error)
        self.failed_applies += len(failures)
        if failures:
            raise failures[0]

    def status(self, project: str, function: str | None = None) -> Mapping[str, Deployment]:
        """Return how the pods of one function, or of all of a project, are doing."""
        namespace = self._cluster.namespace_of(project)
        selector = SELECTOR if function is None else f"{SELECTOR}={function}"
        found: dict[str, list[dict[str, Any]]] = {}
        for version, kind in ((_SERVING, "services"), (_JOB_SINK, "jobsinks"), (_SERVING, "revisions"), ("v1", "pods")):
            found[kind] = self._kubernetes.select(path(version, namespace, kind), selector)
        return deployments.by_function(**found)

    def pin(self, worker: str, busy: bool) -> None:
        """Protect the pod of a worker (`<namespace>.<pod>`) from scale-down, or release it.

        Returns at once: the claim that it belongs to must not wait for Kubernetes.
        """
        self._pins.set(worker, busy)

    def close(self) -> None:
        """Close the connections; the pods are Knative's and go on."""
        self._pins.close()
        self._kubernetes.close()

    def _no_home(self, project: str) -> str:
        return (
            f"If project {project!r} is new, an admin gives it the namespace {self._cluster.namespace_of(project)} and the "
            f"rights there: trainlet install --project {project}"
        )

    def _keep_namespace(self, namespace: str, wanted: dict[str, dict[str, Any]], untouched: set[str]) -> None:
        for label, kinds in _KINDS.items():
            theirs = {at: one for at, one in wanted.items() if label in one["metadata"]["labels"]}
            kept = untouched if label == objects.FUNCTION else set()
            for api_version, kind in sorted(kinds):
                here = {
                    at: one for at, one in theirs.items() if (one["apiVersion"], one["kind"]) == (api_version, kind)
                }
                self._keep_kind(path(api_version, namespace, PLURALS[kind]), label, here, kept)
        self._lower_floors(namespace)

    def _keep_kind(self, folder: str, label: str, wanted: dict[str, dict[str, Any]], untouched: set[str]) -> None:
        found = {
            f"{folder}/{one['metadata']['name']}": one for one in self._kubernetes.select(folder, f"{OURS},{label}")
        }
        for at, one in wanted.items():
            if at not in found or not covers(found[at], one):
                _LOG.info("putting %s right", at)
                self._kubernetes.apply(one)
        for at in found.keys() - wanted.keys():
            if _is_ours(found[at]) and found[at]["metadata"]["labels"][label] not in untouched:
                _LOG.info("removing %s: nothing needs it", at)
                self._kubernetes.delete(at)

    def _lower_floors(self, namespace: str) -> None:
        """Take back floors that nobody stated: of another process, or of a Revision that is not the newest any more."""
        with self._lock:
            stated = {name for (of, name), (workers, _) in self._floors.items() if of == namespace and workers}
        folder = path(_SERVING, namespace, "revisions")
        for revision in self._kubernetes.select(folder, SELECTOR):
            metadata = revision["metadata"]
            floor = metadata.get("annotations", {}).get(objects.MIN_SCALE, "0")
            function = metadata.get("labels", {}).get("serving.knative.dev/service", "")
            if floor != "0" and function not in stated:
                self._set_floor(f"{folder}/{metadata['name']}", 0)

    def _set_floor(self, revision: str, workers: int) -> bool:
        patch = {"metadata": {"annotations": {objects.MIN_SCALE: str(workers)}}}
        return self._kubernetes.merge(revision, patch) is not None


def covers(found: Any, wanted: Any) -> bool:
    """Say whether everything that is wanted is there; what else is there does not matter.

    Kubernetes writes some values in its own way ("4000m" becomes "4"): such an object is applied again, which changes nothing.
    """
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and covers(found[key], one) for key, one in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)


def _is_ours(found: dict[str, Any]) -> bool:
    managers = found["metadata"].get("managedFields", [])
    return any(one.get("manager") == FIELD_MANAGER and one.get("operation") == "Apply" for one in managers)


def _newest_revision(service: dict[str, Any]) -> str | None:
    """Return the newest Revision, or None while Knative has not seen the newest spec."""
    status = service.get("status", {})
    if status.get("observedGeneration") != service["metadata"].get("generation"):
        return None
    name = status.get("latestCreatedRevisionName")
    return str(name) if name else None
