"""The Kubernetes objects of a function, as plain dictionaries: what `apply` sends and what GitOps users print.

Training takes hours and Knative counts requests, so three settings matter most: `timeoutSeconds` is the time a pod may
take to drain, not the length of a task; the autoscaler's target lets N busy pods be exactly N; and a new revision starts
no pod. Everything here is a pure function of a spec and the cluster's settings.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trainlet.core import envelopes
from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.specs import FunctionSpec, GpuRequest

MIN_SCALE = "autoscaling.knative.dev/min-scale"
FUNCTION_EXTENSION = "trainletfunction"
TOKEN_FOLDER = "/var/run/trainlet/token"  # noqa: S105 - where the token is, not a token
TOKEN_AUDIENCE = "trainlet-api"  # noqa: S105
SECRET_KEY = "value"  # noqa: S105
SECRETS_FOLDER = "/var/run/trainlet/secrets"
HOME_FOLDER = "/var/lib/trainlet"
PORT = 8080
_AUTOSCALING = "autoscaling.knative.dev/"
_LABEL = "trainlet.dev/"

Object = dict[str, Any]


class Cluster(Value):
    """What is the same for every function of a cluster.

    `namespace` may hold `{project}`: a namespace per project keeps tenants apart. `drain_s` is how long a pod may take
    to end when it must go; Knative's `max-revision-timeout-seconds` has to allow it. `warm_s` is how long an idle
    worker stays. `sku_label` is the node label that holds the SKU of a node's GPUs; None where all nodes have the same.
    """

    image: str
    api_url: str
    store_url: str
    public_key: str
    dead_letter_url: str
    namespace: str = "trainlet-{project}"
    broker: str = "default"
    broker_ingress: str = "http://broker-ingress.knative-eventing.svc.cluster.local"
    drain_s: int = Field(default=3600, ge=60)
    warm_s: int = Field(default=60, ge=0, le=3600)
    start_s: int = Field(default=1200, ge=60)
    shared_memory: str = "8Gi"
    sku_label: str | None = "trainlet.dev/gpu-sku"

    def namespace_of(self, project: str) -> str:
        """Return the namespace of a project."""
        return self.namespace.format(project=project)

    def project_of(self, namespace: str) -> str | None:
        """Return the project of a namespace; None when the namespace is none of trainlet's."""
        before, _, after = self.namespace.partition("{project}")
        project = namespace.removeprefix(before).removesuffix(after)
        return project if project and self.namespace_of(project) == namespace else None

    def broker_url(self, project: str) -> str:
        """Return where events for a project's functions go."""
        return f"{self.broker_ingress}/{self.namespace_of(project)}/{self.broker}"


def all_objects(cluster: Cluster, project: str, spec: FunctionSpec) -> list[Object]:
    """Return every object of a function, in the order in which they are applied."""
    return [service_account(cluster, project, spec), service(cluster, project, spec), trigger(cluster, project, spec)]


def service_account(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the identity of a function's pods; it has no rights in Kubernetes and no token for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(cluster, project, spec.name),
        "automountServiceAccountToken": False,
    }


def service(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the Knative Service that serves a function from zero to `max_workers` pods."""
    labels = _metadata(cluster, project, spec.name)["labels"]
    timeout_s = max(cluster.drain_s, int(spec.grace_s) + 60)
    pod: Object = {
        "serviceAccountName": spec.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containerConcurrency": 0,
        "timeoutSeconds": timeout_s,
        "responseStartTimeoutSeconds": timeout_s,
        **_placement(cluster, spec),
        "containers": [_container(cluster, project, spec)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": cluster.shared_memory}},
            {"name": "home", "emptyDir": {}},
            _token(),
            *([_secrets(spec)] if spec.secrets else []),
        ],
    }
    annotations = {**_autoscaling(cluster, spec.max_workers), f"{_LABEL}digest": spec.digest()}
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {
            **_metadata(cluster, project, spec.name),
            "labels": {**labels, "networking.knative.dev/visibility": "cluster-local"},
        },
        "spec": {"template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}},
    }


def trigger(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the Trigger that brings a function's wake-ups, and nothing else, to its Service."""
    exact = {"type": envelopes.WAKE_UP, "source": envelopes.source(project), FUNCTION_EXTENSION: spec.name}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": _metadata(cluster, project, spec.name),
        "spec": {
            "broker": cluster.broker,
            "filters": [{"exact": exact}],
            "subscriber": {"ref": {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": spec.name}},
            "delivery": {
                "retry": 20,
                "backoffPolicy": "linear",
                "backoffDelay": "PT30S",
                "timeout": f"PT{cluster.start_s}S",  # a cold start, node and image included, must fit
                "deadLetterSink": {"uri": cluster.dead_letter_url},
            },
        },
    }


def gpu_limits(gpus: tuple[GpuRequest, ...]) -> dict[str, int]:
    """Return the extended resource of a GPU request: whole devices, or slices of one MIG profile.

    Alternatives must be the same resource in the same number: a pod names one. Raises UserError otherwise.
    """
    wanted = [({_resource(one.sku): one.count}, one) for one in gpus]
    if not wanted:
        return {}
    first = wanted[0][0]
    for limits, one in wanted[1:]:
        if limits != first:
            raise UserError(
                f"gpu= lists {gpus[0].sku}:{gpus[0].count} and {one.sku}:{one.count}, which a pod cannot ask for as "
                "alternatives. On a cluster list devices of the same number, all whole or all of one slice."
            )
    return first


def autoscaling_window_s(max_workers: int) -> int:
    """Return the stable window: it must exceed the number of pods, or the average undercounts busy ones."""
    return max(60, 2 * max_workers)


def autoscaling_target(max_workers: int) -> float:
    """Return the concurrency target at which N busy pods, for any N up to the maximum, want exactly N pods.

    It lies between 1 and (1 - 1/window) * max / (max - 1): above 1 because a status request beside a hold must not want
    one more, below the bound because the newest second of the window lacks the pods' own share.
    """
    if max_workers == 1:
        return 1.0
    bound = (1 - 1 / autoscaling_window_s(max_workers)) * max_workers / (max_workers - 1)
    return round((1 + bound) / 2, 6)


def _autoscaling(cluster: Cluster, max_workers: int) -> dict[str, str]:
    names = {
        "class": "kpa.autoscaling.knative.dev",
        "metric": "concurrency",
        "target": f"{autoscaling_target(max_workers):.10g}",
        "target-utilization-percentage": "100",
        "target-burst-capacity": "211",
        "window": f"{autoscaling_window_s(max_workers)}s",
        "max-scale": str(max_workers),
        "initial-scale": "0",
        "scale-down-delay": f"{cluster.warm_s}s",
        "scale-to-zero-pod-retention-period": f"{cluster.warm_s}s",
    }
    found = {_AUTOSCALING + name: value for name, value in names.items()}
    return {**found, "serving.knative.dev/progress-deadline": f"{cluster.start_s}s"}


def _container(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    limits: dict[str, Any] = dict(gpu_limits(spec.resources.gpus))
    requests: dict[str, Any] = {}
    if spec.resources.cpu is not None:
        requests["cpu"] = f"{round(spec.resources.cpu * 1000)}m"
    if spec.resources.memory_bytes is not None:
        requests["memory"] = limits["memory"] = str(spec.resources.memory_bytes)
    values = {
        "TRAINLET_API": cluster.api_url,
        "TRAINLET_STORE": cluster.store_url,
        "TRAINLET_PUBLIC_KEY": cluster.public_key,
        "TRAINLET_PROJECT": project,
        "TRAINLET_FUNCTION": spec.name,
        "TRAINLET_HOME": HOME_FOLDER,
        "TRAINLET_NAMESPACE": cluster.namespace_of(project),
        "TRAINLET_SECRETS_DIR": SECRETS_FOLDER,
        "TRAINLET_WORKER_TOKEN_FILE": f"{TOKEN_FOLDER}/token",
        "TRAINLET_VIRTUAL_GPUS": "0",
    }
    return {
        "name": "worker",
        "image": spec.image or cluster.image,
        "command": ["python", "-m", "trainlet_functions.worker"],
        "ports": [{"name": "http1", "containerPort": PORT}],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "resources": {"limits": limits, "requests": requests},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # No liveness probe: it would restart a worker that is busy. Readiness only says that the server listens.
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 5, "failureThreshold": 3},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the shared memory of the pod, not a temporary file
            {"name": "home", "mountPath": HOME_FOLDER},
            {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
            *([{"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True}] if spec.secrets else []),
        ],
    }


def _token() -> Object:
    """Return the volume of the pod's identity: a token that only the training API accepts, renewed by the kubelet."""
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def _secrets(spec: FunctionSpec) -> Object:
    """Return the volume of the step's secrets: the key `value` of the Secret `name` becomes the file `name`."""
    sources = [{"secret": {"name": name, "items": [{"key": SECRET_KEY, "path": name}]}} for name in spec.secrets]
    return {"name": "secrets", "projected": {"sources": sources}}


def _placement(cluster: Cluster, spec: FunctionSpec) -> Object:
    """Return where the pod may run: on nodes with the asked SKU, or with one of the alternatives."""
    models = list(dict.fromkeys(one.sku.partition("/")[0] for one in spec.resources.gpus))
    if cluster.sku_label is None or not models:
        return {}
    if len(models) == 1:
        return {"nodeSelector": {cluster.sku_label: models[0]}}
    terms = [{"matchExpressions": [{"key": cluster.sku_label, "operator": "In", "values": models}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def _resource(sku: str) -> str:
    _, _, profile = sku.partition("/")
    return f"nvidia.com/mig-{profile}" if profile else "nvidia.com/gpu"


def _metadata(cluster: Cluster, project: str, name: str) -> Object:
    labels = {
        "app.kubernetes.io/managed-by": "trainlet",
        f"{_LABEL}project": project,
        f"{_LABEL}function": name,
    }
    return {"name": name, "namespace": cluster.namespace_of(project), "labels": labels}
