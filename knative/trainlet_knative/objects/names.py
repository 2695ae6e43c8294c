"""What the objects of a function have in common: their names, namespace and labels."""

from __future__ import annotations

from typing import Any

from trainlet_knative.clusters import Cluster

Object = dict[str, Any]
FUNCTION_EXTENSION = "trainletfunction"
PREFIX = "trainlet.dev/"
MANAGED_BY = {"app.kubernetes.io/managed-by": "trainlet"}
FUNCTION, TRIGGER = f"{PREFIX}function", f"{PREFIX}trigger"  # the labels that say what an object belongs to


def labels(project: str, name: str) -> dict[str, str]:
    """Return the labels by which a function's objects and pods are found."""
    return {**MANAGED_BY, f"{PREFIX}project": project, FUNCTION: name}


def metadata(cluster: Cluster, project: str, name: str) -> Object:
    """Return the metadata of an object that is named as its function."""
    return {"name": name, "namespace": cluster.namespace_of(project), "labels": labels(project, name)}


def trigger_metadata(cluster: Cluster, project: str, name: str, trigger: str) -> Object:
    """Return the metadata of an object that belongs to a trigger."""
    found = {**MANAGED_BY, f"{PREFIX}project": project, TRIGGER: trigger}
    return {"name": name, "namespace": cluster.namespace_of(project), "labels": found}
