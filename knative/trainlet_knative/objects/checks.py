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
            f"A step cannot be named {spec.name!r} on a cluster: each namespace has a service account of that name. "
            'Give it another: @tl.step(name="...").'
        )
    most_s = cluster.max_timeout_s
    if most_s is None:
        return
    if spec.timeout_s is None:
        raise UserError(f"Step {spec.name} has no timeout=, and this cluster wants one of at most {most_s:g} s.")
    if spec.timeout_s > most_s:
        raise UserError(
            f"Step {spec.name} has timeout={spec.timeout_s:g} s, and this cluster allows at most {most_s:g} s. Write less, "
            "or ask an admin to raise max_timeout_s; a step with checkpoints can go on in another run."
        )
