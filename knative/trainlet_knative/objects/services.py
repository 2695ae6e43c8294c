"""The Knative Service of a function.

Training takes hours and Knative counts requests, so three settings matter most: `timeoutSeconds` is the time a pod may
take to drain, not the length of a task; the autoscaler's target lets N busy pods be exactly N; and a new revision starts
no pod.
"""

from __future__ import annotations

from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import pods, triggers
from trainlet_knative.objects.names import PREFIX, Object, labels, metadata

MIN_SCALE = "autoscaling.knative.dev/min-scale"
PORT = 8080
_AUTOSCALING = "autoscaling.knative.dev/"


def service(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the Knative Service that serves a function from zero to `max_workers` pods.

    The digest of the spec is on the Service itself, never on its template: it changes with the code.
    """
    named = metadata(cluster, project, spec.name)
    timeout_s = pods.drain_s(cluster, spec)
    pod = pods.pod(cluster, project, spec)
    (container,) = pod["containers"]
    container["ports"] = [{"name": "http1", "containerPort": PORT}]
    # No liveness probe: it would restart a worker that is busy. Readiness only says that the server listens.
    container["readinessProbe"] = {"tcpSocket": {"port": PORT}, "periodSeconds": 5, "failureThreshold": 3}
    container["env"].append({"name": "TRAINLET_HOLD_S", "value": str(timeout_s // 2)})  # well before it is cut
    if cluster.oidc:
        wanted = triggers.audience(cluster, project, spec.name)
        container["env"].append({"name": "TRAINLET_EVENT_AUDIENCE", "value": wanted})
    drain = {"containerConcurrency": 0, "timeoutSeconds": timeout_s, "responseStartTimeoutSeconds": timeout_s}
    template = {
        "metadata": {"labels": labels(project, spec.name), "annotations": _autoscaling(cluster, spec.max_workers)},
        "spec": {**drain, **pod},
    }
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {
            **named,
            "labels": {**named["labels"], "networking.knative.dev/visibility": "cluster-local"},
            "annotations": {f"{PREFIX}digest": spec.digest()},
        },
        "spec": {"template": template},
    }


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
