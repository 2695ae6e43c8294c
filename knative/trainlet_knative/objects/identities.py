"""Who a function's pods are: a service account of their own, good for nothing but asking the training API for work."""

from __future__ import annotations

from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects.names import Object, metadata

AUDIENCE = "trainlet-api"
EVENTS_AUDIENCE = "trainlet-events"
"""What the token of a Trigger or source is meant for that sends events to the training API: it can do nothing else there."""
POD_TOKEN_LABEL = "trainlet.dev/pod-token"  # noqa: S105 - by which a PodDefault finds Kubeflow's pods
TOKEN_FOLDER = "/var/run/trainlet/token"  # noqa: S105 - where the token is, not a token
TOKEN_FILE = f"{TOKEN_FOLDER}/token"


def service_account(cluster: Cluster, project: str, spec: FunctionSpec) -> Object:
    """Return the identity of a function's pods; it has no rights in Kubernetes and no token for it."""
    named = metadata(cluster, project, spec.name)
    if cluster.service_account_annotations:
        named["annotations"] = dict(cluster.service_account_annotations)
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named, "automountServiceAccountToken": False}


def token_volume() -> Object:
    """Return the volume of the pod's identity: a token that only the training API accepts, renewed by the kubelet."""
    token = {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}
