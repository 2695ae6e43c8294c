"""The pod of a worker, the same whether a Service or a Job makes it."""

from __future__ import annotations

from typing import Any

from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import identities, placements
from trainlet_knative.objects.names import Object

SECRET_KEY = "value"  # noqa: S105 - the name of a key
SECRETS_FOLDER = "/var/run/trainlet/secrets"
HOME_FOLDER = "/var/lib/trainlet"
CACHE_FOLDER = "/var/cache/trainlet"
DRAIN_MARGIN_S = 60


def drain_s(cluster: Cluster, spec: FunctionSpec) -> int:
    """Return how long a pod may take to end when it must go: the step's grace has to fit."""
    return max(cluster.drain_s, int(spec.grace_s) + DRAIN_MARGIN_S)


def pod(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the spec of the pod, without what only a Service or only a Job has."""
    return {
        "serviceAccountName": spec.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **placements.placement(cluster, spec),
        "containers": [_container(cluster, project, spec)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": cluster.shared_memory}},
            {"name": "home", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            identities.token_volume(),
            *([_cache(cluster.package_cache)] if cluster.package_cache is not None else []),
            *([_secrets(spec)] if spec.secrets else []),
        ],
    }


def _container(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    security: Object = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if cluster.run_as_user is not None:
        security["runAsUser"] = cluster.run_as_user
    container: Object = {
        "name": "worker",
        "image": spec.image or cluster.image,
        "command": ["python", "-m", "trainlet_functions.worker"],
        "env": [{"name": name, "value": value} for name, value in _environment(cluster, project, spec).items()],
        "resources": _resources(cluster, spec),
        "securityContext": security,
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the shared memory of the pod, not a temporary file
            {"name": "home", "mountPath": HOME_FOLDER},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume: the root is read-only
            {"name": "token", "mountPath": identities.TOKEN_FOLDER, "readOnly": True},
            *([{"name": "cache", "mountPath": CACHE_FOLDER}] if cluster.package_cache is not None else []),
            *([{"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True}] if spec.secrets else []),
        ],
    }
    if cluster.store_secret is not None:
        container["envFrom"] = [{"secretRef": {"name": cluster.store_secret}}]
    return container


def _environment(cluster: Cluster, project: str, spec: FunctionSpec) -> dict[str, str]:
    virtual = [f"{one.sku}:{one.count}" for one in spec.resources.gpus[:1]] if cluster.virtual_gpus else []
    return {
        **({} if cluster.sink is None else {"K_SINK": cluster.sink}),
        **({} if cluster.package_cache is None else {"TRAINLET_CACHE": CACHE_FOLDER}),
        "HOME": HOME_FOLDER,
        "TRAINLET_API": cluster.api_url,
        "TRAINLET_STORE": cluster.store_url,
        "TRAINLET_PUBLIC_KEY": cluster.public_key,
        "TRAINLET_PROJECT": project,
        "TRAINLET_FUNCTION": spec.name,
        "TRAINLET_HOME": HOME_FOLDER,
        "TRAINLET_NAMESPACE": cluster.namespace_of(project),
        "TRAINLET_SECRETS_DIR": SECRETS_FOLDER,
        "TRAINLET_WORKER_TOKEN_FILE": identities.TOKEN_FILE,
        "TRAINLET_VIRTUAL_GPUS": virtual[0] if virtual else "0",
    }


def _resources(cluster: Cluster, spec: FunctionSpec) -> Object:
    limits: dict[str, Any] = {}
    if not cluster.virtual_gpus:
        limits.update(placements.gpu_limits(cluster.gpus, spec.resources.gpus))
    requests: dict[str, Any] = {}
    if spec.resources.cpu is not None:
        thousandths = max(1, round(spec.resources.cpu * 1000))  # spelled as Kubernetes keeps it: 2, 500m
        requests["cpu"] = f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
    if spec.resources.memory_bytes is not None:
        requests["memory"] = limits["memory"] = str(spec.resources.memory_bytes)
    # Knative writes no empty mapping back: one would look changed for ever.
    return {name: found for name, found in (("limits", limits), ("requests", requests)) if found}


def _cache(claim: str) -> Object:
    """Return the volume of installed packages; a claim is of one namespace: no project runs what another put there."""
    return {"name": "cache", "persistentVolumeClaim": {"claimName": claim}}


def _secrets(spec: FunctionSpec) -> Object:
    """Return the volume of the step's secrets: the key `value` of the Secret `name` becomes the file `name`."""
    sources = [{"secret": {"name": name, "items": [{"key": SECRET_KEY, "path": name}]}} for name in spec.secrets]
    return {"name": "secrets", "projected": {"sources": sources}}
