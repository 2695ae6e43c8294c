"""The Trigger that brings a function's wake-ups, and nothing else, from the project's broker."""

from __future__ import annotations

from trainlet.core import envelopes
from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects.names import FUNCTION_EXTENSION, Object, metadata


def trigger(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the Trigger, with its delivery in full: a broker's own defaults give up after three minutes."""
    exact = {"type": envelopes.WAKE_UP, "source": envelopes.source(project), FUNCTION_EXTENSION: spec.name}
    if spec.backend == "job":
        subscriber: Object = {"ref": _ref("sinks.knative.dev/v1alpha1", "JobSink", spec.name)}
        timeout_s = 60  # a JobSink answers when the Job is made
    else:
        subscriber = {"ref": _ref("serving.knative.dev/v1", "Service", spec.name)}
        if cluster.oidc:  # a Service has no audience of its own; without one the broker sends no token
            subscriber["audience"] = audience(cluster, project, spec.name)
        timeout_s = cluster.start_s  # a cold start, node and image included, must fit
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": metadata(cluster, project, spec.name),
        "spec": {
            "broker": cluster.broker,
            "filters": [{"exact": exact}],
            "subscriber": subscriber,
            "delivery": delivery(timeout_s, {"uri": cluster.dead_letter_url}),
        },
    }


def delivery(timeout_s: int, dead_letter_sink: Object) -> Object:
    """Return how hard a broker tries: for almost two hours, and then it says so."""
    return {
        "retry": 20,
        "backoffPolicy": "linear",
        "backoffDelay": "PT30S",
        "timeout": f"PT{timeout_s}S",
        "deadLetterSink": dead_letter_sink,
    }


def audience(cluster: Cluster, project: str, function: str) -> str:
    """Return the OIDC audience of the tokens that the broker sends to a function's workers."""
    return f"trainlet.dev/function/{cluster.namespace_of(project)}/{function}"


def _ref(api_version: str, kind: str, name: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "name": name}
