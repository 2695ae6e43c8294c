"""What a cluster must be like for steps to run on it: each check says what it saw, why it matters, and what mends it.

Knative's defaults are made for short requests; most of what is checked here is a setting that hours on a GPU need
otherwise. Nothing is changed, and a check that may not look says which right it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainlet.core.clocks import Clock, SystemClock
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, Refused
from trainlet_knative.diagnosis import api, eventing, nodes, rights, serving
from trainlet_knative.diagnosis.findings import Finding

__all__ = ["Finding", "diagnose"]


def diagnose(
    kubernetes: Kubernetes, cluster: Cluster, projects: Sequence[str], clock: Clock | None = None
) -> Iterator[Finding]:
    """Yield the findings of all checks. Raises PlatformError when the cluster is not reached."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("clock", lambda: nodes.clocks(kubernetes, clock or SystemClock())),
        ("rights", lambda: rights.of_the_caller(kubernetes)),
        ("Knative Serving", lambda: serving.running(kubernetes, cluster)),
        ("features", lambda: serving.features(kubernetes, cluster)),
        ("timeouts", lambda: serving.timeouts(kubernetes, cluster)),
        ("autoscaler", lambda: serving.autoscaler(kubernetes, cluster)),
        ("scheduling", lambda: serving.scheduling(kubernetes, cluster)),
        ("ingress", lambda: serving.ingress(kubernetes, cluster)),
        ("Knative Eventing", lambda: eventing.running(kubernetes, cluster)),
        ("broker", lambda: eventing.brokers(kubernetes, cluster, projects)),
        ("OIDC", lambda: eventing.oidc(kubernetes, cluster)),
        ("GPU nodes", lambda: nodes.gpus(kubernetes, cluster)),
        ("storage class", lambda: nodes.storage(kubernetes)),
        ("training API", lambda: api.running(kubernetes)),
        ("project", lambda: api.projects(kubernetes, cluster, projects)),
    ]
    for name, check in checks:
        try:
            yield from check()
        except Refused as error:
            yield Finding(name, "warn", f"it could not be looked at: {error}", "", "run doctor as a cluster admin")
