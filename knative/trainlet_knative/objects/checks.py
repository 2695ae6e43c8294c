"""What a cluster refuses, before anything is applied."""

from __future__ import annotations

from trainlet.core.errors import UserError
from trainlet.core.specs import FunctionSpec
from trainlet_knative.clusters import Cluster

# Kubernetes makes a service account of this name in every namespace, and pods that name none get it.
RESERVED = frozenset({"default"})


def check(cluster: Cluster, project: str, spec: FunctionSpec) -> None:
    """Raise UserError for a step that this cluster cannot run; GPUs are checked where they are placed."""
    cluster.namespace_of(project)
    if spec.name in RESERVED:
        raise UserError(
            f"Each namespace has a service account named {spec.name!r} already. Give the step another name: "
            '@tl.step(name="...").'
        )
    if spec.nodes is not None and not cluster.steps_choose_nodes:
        raise UserError(
            "It has a node selector, toleration or affinity of its own, which this cluster does not allow "
            "(steps_choose_nodes: false). Remove it; the GPU catalogue says where a GPU's nodes are."
        )
    most_s = cluster.max_timeout_s
    if most_s is None:
        return
    if spec.timeout_s is None:
        raise UserError(f"It has no timeout=, and one of at most {most_s:g} s is wanted.")
    if spec.timeout_s > most_s:
        raise UserError(
            f"timeout={spec.timeout_s:g} s, and at most {most_s:g} s is allowed. Write less, or ask an admin to raise "
            "max_timeout_s."
        )
