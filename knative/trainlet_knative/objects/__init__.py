"""The Kubernetes objects of functions and triggers, as plain dictionaries: what `apply` sends and what GitOps users print.

Everything here is a pure function of a spec and the cluster's settings, and nothing here depends on the function's
code: a worker fetches the bundle of each task, so editing code makes no Revision. It must not know Kubernetes' API.
"""

from __future__ import annotations

from trainlet.core.errors import UserError
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects import identities, jobs, policies, services, subscriptions, triggers
from trainlet_knative.objects.checks import check
from trainlet_knative.objects.names import FUNCTION, FUNCTION_EXTENSION, MANAGED_BY, TRIGGER, Object
from trainlet_knative.objects.services import MIN_SCALE

__all__ = [
    "FUNCTION", "FUNCTION_EXTENSION", "MANAGED_BY", "MIN_SCALE", "TRIGGER", "Cluster", "Object", "all_objects",
    "trigger_objects",
]  # fmt: skip


def all_objects(cluster: Cluster, project: str, spec: FunctionSpec) -> list[Object]:
    """Return every object of a function, in the order in which they are applied.

    Raises UserError for a step that this cluster cannot run.
    """
    served = jobs.job_sink if spec.backend == "job" else services.service
    try:
        check(cluster, project, spec)
        return [
            identities.service_account(cluster, project, spec),
            policies.network_policy(cluster, project, spec),
            served(cluster, project, spec),
            triggers.trigger(cluster, project, spec),
            *policies.event_policies(cluster, project, spec),
        ]
    except UserError as error:
        raise UserError(f"Step {spec.name} does not fit this cluster. {error}") from None


def trigger_objects(cluster: Cluster, project: str, watch: Watch) -> list[Object]:
    """Return every object of a subscription or a schedule."""
    return subscriptions.objects_of(cluster, project, watch)
