"""Who a pod or a sender of events is: its service-account token, reviewed by Kubernetes.

A worker in a pod has no secret of ours. Kubernetes mounts a token into it that names its service account and the pod
itself, is good for the training API only, and is renewed every hour; a TokenReview turns it into (project, function, pod).
A pod of Kubeflow has such a token, too, and acts for the project that the cluster's settings give its namespace.
Knative's senders (a Trigger, a source) have tokens for the audience of whom they send to, with the service account of
their namespace. That audience is another one here, so that neither kind of token is good for what the other may do.

Where wake-ups carry the identity of their Trigger (OIDC), a worker has it reviewed here in the same way: workers have no
rights in Kubernetes, and need no keys of the cluster.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

from trainlet.core.clocks import Clock, SystemClock
from trainlet.core.errors import AccessError, PlatformError
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path
from trainlet_knative.objects.identities import AUDIENCE, EVENTS_AUDIENCE
from trainlet_knative.objects.triggers import audience

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD = "authentication.kubernetes.io/pod-name"
_USER = "system:serviceaccount:"
FRESH_S = 120.0
STALE_S = 900.0  # how long an answer is good for while nobody can be asked
_MOST = 10_000


class UnknownNamespace(AccessError):
    """Raised when Kubernetes knows the pod, and its namespace belongs to no project."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The worker that a token belongs to."""

    project: str
    function: str
    worker: str


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A pod of Kubeflow, which may do for its project what a person may."""

    project: str
    pod: str


@dataclass(frozen=True, slots=True)
class SenderIdentity:
    """Somebody in a project's namespace who may bring events in, and nothing else."""

    project: str
    account: str


Identity = PodIdentity | ClientIdentity | SenderIdentity


class TokenReviewer:
    """Reviews tokens, and remembers the answers for a while: a worker asks for work again and again."""

    def __init__(self, cluster: Cluster, kubernetes: Kubernetes, *, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._kubernetes = kubernetes
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[int, Identity]] = {}
        self._triggers: dict[str, int] = {}  # token and function -> when it was found right
        self._lock = threading.Lock()

    def review(self, token: str) -> Identity:
        """Return the worker, the pod of Kubeflow or the sender of events that the token belongs to.

        Raises AccessError when Kubernetes does not know the token, when it is meant for somebody else or names no pod or
        service account of a project, UnknownNamespace when the namespace of a pod belongs to no project; PlatformError when
        Kubernetes cannot be asked and has not answered lately.
        """
        key = hashlib.sha256(token.encode()).hexdigest()
        now_ns = self._clock.boot_ns()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now_ns - known[0] < FRESH_S * 1e9:
            return known[1]
        try:
            status = self._ask(token, AUDIENCE, EVENTS_AUDIENCE)
        except PlatformError:
            if known is not None and now_ns - known[0] < STALE_S * 1e9:
                return known[1]
            raise
        try:
            found = self._identity(status)
        except AccessError:
            with self._lock:
                self._known.pop(key, None)
            raise
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = (now_ns, found)
        return found

    def _ask(self, token: str, *audiences: str) -> dict[str, Any]:
        """Return what Kubernetes says of a token that may be meant for any of the audiences."""
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status: dict[str, Any] = self._kubernetes.create(_PATH, body)["status"]
        return status

    def review_trigger(self, project: str, function: str, token: str) -> None:
        """Return when the token is that of the function's own Trigger, made for the function's workers.

        Raises AccessError when it is not; PlatformError when Kubernetes cannot be asked.
        """
        key = hashlib.sha256(f"{project}\0{function}\0{token}".encode()).hexdigest()
        now_ns = self._clock.boot_ns()
        with self._lock:
            if now_ns - self._triggers.get(key, -(10**18)) < FRESH_S * 1e9:
                return
        wanted = audience(self._cluster, project, function)
        status = self._ask(token, wanted)
        if not status.get("authenticated") or wanted not in (status.get("audiences") or []):
            raise AccessError(
                f"The event's token is not one for {wanted}: {status.get('error') or 'Kubernetes does not accept it'}."
            )
        namespace = self._cluster.namespace_of(project)
        trigger = self._kubernetes.get(f"{path('eventing.knative.dev/v1', namespace, 'triggers')}/{function}") or {}
        account = trigger.get("status", {}).get("auth", {}).get("serviceAccountName")
        sender = str((status.get("user") or {}).get("username", ""))
        if not account or sender != f"{_USER}{namespace}:{account}":
            its = f"{namespace}/{account}" if account else "nobody: Eventing gave it no identity"
            raise AccessError(
                f"The event's token is that of {sender or 'nobody'}, and the Trigger of {function} is {its}. Events for a "
                "worker come through its own Trigger."
            )
        with self._lock:
            if len(self._triggers) >= _MOST:
                self._triggers.clear()
            self._triggers[key] = now_ns

    def _identity(self, status: dict[str, object]) -> Identity:
        user = status.get("user")
        audiences = status.get("audiences")
        if not status.get("authenticated") or not isinstance(user, dict):
            raise AccessError(
                f"Kubernetes does not accept the pod's token: {status.get('error') or 'it is not valid'}."
            )
        meant = [one for one in (AUDIENCE, EVENTS_AUDIENCE) if isinstance(audiences, list) and one in audiences]
        if not meant:
            raise AccessError(
                f"The token is not meant for the training API: its audience must be {AUDIENCE!r}, or {EVENTS_AUDIENCE!r} "
                "to send events."
            )
        name = str(user.get("username", ""))
        namespace, _, account = name.removeprefix(_USER).partition(":")
        pod = (user.get("extra") or {}).get(_POD) or [""]
        if name.startswith(_USER) and account:
            if AUDIENCE in meant and pod[0]:
                return self._pod(namespace, account, pod[0])
            project = self._cluster.project_of(namespace)
            if EVENTS_AUDIENCE in meant and project is not None:
                return SenderIdentity(project, f"{namespace}/{account}")
        raise AccessError(
            f"{name or 'The token'} is no pod: the training API takes the tokens of pods only."
            if AUDIENCE in meant
            else f"{name or 'The token'} is no service account in the namespace of a project."
        )

    def _pod(self, namespace: str, account: str, pod: str) -> PodIdentity | ClientIdentity:
        project = self._cluster.project_of(namespace)
        if project is not None:
            return PodIdentity(project, account, f"{namespace}.{pod}")
        given = self._cluster.kubeflow_namespaces.get(namespace)
        if given is None:
            raise UnknownNamespace(
                f"The namespace {namespace} (of pod {pod}, service account {account}) belongs to no project. An admin adds "
                f"`kubeflow_namespaces: {{{namespace}: PROJECT}}` to cluster.yaml, runs `trainlet install` and restarts the "
                "training API."
            )
        return ClientIdentity(given, f"{namespace}.{pod}")
