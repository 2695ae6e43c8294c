"""Knative Eventing: its parts, and the broker that brings wake-ups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path
from trainlet_knative.diagnosis.findings import Finding, config, judged, patch, ready_replicas

_CLASS = "eventing.knative.dev/broker.class"
_DEFAULT_CLASS = "MTChannelBasedBroker"


def running(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check that Eventing's parts are ready and its types known."""
    namespace = cluster.eventing_namespace
    counts = {part: ready_replicas(kubernetes, namespace, part) for part in ("eventing-controller", "eventing-webhook")}
    down = [part for part, count in counts.items() if not count]
    saw = f"in {namespace}: " + ", ".join(f"{part} {count or 0} ready" for part, count in counts.items())
    why = "a task's wake-up goes through a Broker and a Trigger"
    fix = "install Knative Eventing: https://knative.dev/docs/install"
    if down and counts[down[0]] is not None:
        fix = f"kubectl -n {namespace} describe deployment {down[0]}"
    yield judged("Knative Eventing", not down, saw, why, fix)
    known = kubernetes.get("/apis/sinks.knative.dev/v1alpha1") or {}
    jobs = any(one.get("name") == "jobsinks" for one in known.get("resources", []))
    why = 'steps with backend="job" need it; others do not'
    yield judged(
        "JobSink", jobs, "known" if jobs else "not known", why, "update Knative Eventing to 1.15 or newer", "warn"
    )


def brokers(kubernetes: Kubernetes, cluster: Cluster, projects: Sequence[str]) -> Iterator[Finding]:
    """Check each project's broker, and whether it keeps events."""
    for project in projects:
        namespace = cluster.namespace_of(project)
        name = f"broker of {project}"
        found = kubernetes.get(f"{path('eventing.knative.dev/v1', namespace, 'brokers')}/{cluster.broker}")
        if found is None:
            why = "wake-ups are posted to it; without one tasks wait until a worker asks, and from zero nobody asks"
            yield Finding(
                name, "bad", f"no Broker {cluster.broker} in {namespace}", why, f"trainlet install --project {project}"
            )
            continue
        conditions = found.get("status", {}).get("conditions") or []
        ready: dict[str, str] = next((one for one in conditions if one.get("type") == "Ready"), {})
        good = ready.get("status") == "True"
        said = (
            "" if good else f", not Ready: {ready.get('message') or ready.get('reason') or 'nobody has looked at it'}"
        )
        kind = found["metadata"].get("annotations", {}).get(_CLASS) or _DEFAULT_CLASS
        fix = f"kubectl -n {namespace} describe broker {cluster.broker}"
        yield judged(name, good, f"{kind}{said}", "a Broker that is not Ready takes no events", fix)
        if kind == _DEFAULT_CLASS and _channel(kubernetes, cluster) == "InMemoryChannel":
            why = "events live in memory: a restart loses them, and the training API has to announce its tasks again"
            fix = "use a broker that keeps events on disk, such as Kafka's: https://knative.dev/docs/eventing/brokers"
            yield Finding(f"durability of {project}", "warn", "InMemoryChannel", why, fix)


def _channel(kubernetes: Kubernetes, cluster: Cluster) -> str:
    import yaml

    text = config(kubernetes, cluster.eventing_namespace, "config-br-default-channel").get("channel-template-spec", "")
    found = yaml.safe_load(text) if text else None
    return str(found.get("kind", "")) if isinstance(found, dict) else "InMemoryChannel"


def oidc(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check that the cluster's settings and Eventing agree on OIDC."""
    namespace, key = cluster.eventing_namespace, "authentication-oidc"
    enabled = config(kubernetes, namespace, "config-features").get(key, "disabled").lower() == "enabled"
    saw = f"{'enabled' if enabled else 'disabled'} in Eventing, oidc: {str(cluster.oidc).lower()} in cluster.yaml"
    if enabled and not cluster.oidc:
        why = "the settings have to say so too, or a JobSink takes events of others; signatures are checked in any case"
        yield Finding("OIDC", "warn", saw, why, "write oidc: true in cluster.yaml")
        return
    why = "Eventing refuses an EventPolicy while its feature is off, and the step with it"
    yield judged("OIDC", enabled == cluster.oidc, saw, why, patch(namespace, "config-features", key, "enabled"))
