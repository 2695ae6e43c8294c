"""The JobSink of a function: a Job for each event, for steps that want a queue, a deadline or no warm pool.

The same worker image serves it. A Job is never tried again by Kubernetes: the training API decides about attempts.
"""

from __future__ import annotations

from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import pods
from trainlet_knative.objects.names import PREFIX, Object, labels, metadata

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def job_sink(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the JobSink that runs a Job for each wake-up of a function."""
    pod = {
        **pods.pod(cluster, project, spec),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": pods.drain_s(cluster, spec),
    }
    (container,) = pod["containers"]
    container["env"].append({"name": "K_EXECUTION_MODE", "value": "batch"})  # Eventing adds it where it is not there
    found = labels(project, spec.name)
    job: Object = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": cluster.job_ttl_s,
        "template": {"metadata": {"labels": found}, "spec": pod},
    }
    if spec.timeout_s is not None:  # the worker keeps the step's own time; this is for a worker that is wedged
        job["activeDeadlineSeconds"] = cluster.start_s + int(spec.timeout_s) + pods.drain_s(cluster, spec)
    queue = {} if cluster.kueue_queue is None else {QUEUE_LABEL: cluster.kueue_queue}
    named = metadata(cluster, project, spec.name)
    return {
        "apiVersion": "sinks.knative.dev/v1alpha1",
        "kind": "JobSink",
        "metadata": {**named, "annotations": {f"{PREFIX}digest": spec.digest()}},
        "spec": {"job": {"metadata": {"labels": {**found, **queue}}, "spec": job}},
    }
