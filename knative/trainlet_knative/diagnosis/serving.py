"""Knative Serving: its parts, and the settings that hours on a GPU need."""

from __future__ import annotations

from collections.abc import Iterator

from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes, path
from trainlet_knative.diagnosis.findings import Finding, config, judged, patch, ready_replicas

_PARTS = ("controller", "webhook", "autoscaler", "activator")
_ON = frozenset({"enabled", "allowed"})
_DANGEROUS = ("kubernetes.podspec-volumes-hostpath", "kubernetes.podspec-hostipc", "kubernetes.podspec-hostpid",
              "kubernetes.podspec-hostnetwork")  # fmt: skip
_INGRESS_NAMESPACES = {
    "kourier": ("kourier-system",),
    "istio": ("istio-system", "istio-ingress"),
    "contour": ("contour-internal", "contour-external"),
}


def running(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check that Serving's parts are there and ready."""
    namespace = cluster.serving_namespace
    counts = {part: ready_replicas(kubernetes, namespace, part) for part in _PARTS}
    down = [part for part, count in counts.items() if not count]
    saw = f"in {namespace}: " + ", ".join(f"{part} {count or 0} ready" for part, count in counts.items())
    why = "steps are Knative Services: without all parts none is made, scaled or reached"
    install = "https://knative.dev/docs/install" if all(count is None for count in counts.values()) else ""
    fix = (
        f"install Knative Serving: {install}"
        if install
        else f"kubectl -n {namespace} describe deployment {down[0] if down else ''}"
    )
    yield judged("Knative Serving", not down, saw, why, fix)


def features(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check the flags of `config-features` that the objects of a step need."""
    namespace, name = cluster.serving_namespace, "config-features"
    flags = config(kubernetes, namespace, name)
    for flag, reason in needed_features(cluster).items():
        value = flags.get(flag, "disabled")
        why = f"{reason}; with the flag off Knative's webhook refuses the Service"
        yield judged(f"feature {flag}", value in _ON, value, why, patch(namespace, name, flag, "enabled"))
    emptydir = flags.get("kubernetes.podspec-volumes-emptydir", "enabled")
    fix = patch(namespace, name, "kubernetes.podspec-volumes-emptydir", "enabled")
    why = "a worker's home, /tmp and /dev/shm are volumes"
    yield judged("feature kubernetes.podspec-volumes-emptydir", emptydir in _ON, emptydir, why, fix)
    for flag in _DANGEROUS:
        if flags.get(flag, "disabled") in _ON:
            why = "whoever may make a Service in any namespace reaches the node with it; trainlet does not need it"
            yield Finding(f"feature {flag}", "warn", flags[flag], why, patch(namespace, name, flag, "disabled"))


def needed_features(cluster: Cluster) -> dict[str, str]:
    """Return the flags that the objects of this cluster's steps need, each with its reason."""
    catalogue = cluster.gpus
    places = [] if cluster.virtual_gpus else [catalogue.defaults, *(catalogue.gpus or {}).values()]
    found: dict[str, str] = {}
    if any(place.node_selector for place in places):
        found["kubernetes.podspec-nodeselector"] = "a step runs on nodes that have its GPU"
        found["kubernetes.podspec-affinity"] = "a step with alternatives, gpu=[...], runs on nodes that have either"
    if cluster.unreachable_s is not None or cluster.spot or any(place.tolerations for place in places):
        found["kubernetes.podspec-tolerations"] = "GPU nodes are tainted, and pods of a lost node are given up soon"
    if any(place.runtime_class for place in places):
        found["kubernetes.podspec-runtimeclassname"] = "the GPU catalogue names a runtime class"
    if cluster.package_cache is not None:
        found["kubernetes.podspec-persistent-volume-claim"] = "package_cache names a claim"
        found["kubernetes.podspec-persistent-volume-write"] = "workers install packages into package_cache"
    return found


def timeouts(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check how long a pod may take to end, and how long the activator waits for one to start."""
    namespace, key = cluster.serving_namespace, "max-revision-timeout-seconds"
    most_s = _number(config(kubernetes, namespace, "config-defaults").get(key), 600)
    why = f"a pod gets drain_s = {cluster.drain_s} s to save and end; Knative refuses Services that ask for more than this"
    fix = patch(namespace, "config-defaults", key, str(cluster.drain_s))
    yield judged(key, most_s >= cluster.drain_s, f"{most_s:g}", why, fix)
    found = kubernetes.get(f"{path('apps/v1', namespace, 'deployments')}/activator")
    if found is None:
        return
    grace_s = found["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30)
    why = f"an event that waits for a new pod (start_s = {cluster.start_s} s) is cut when the activator is replaced earlier"
    fix = (
        f"kubectl -n {namespace} patch deployment activator --type merge -p "
        f"""'{{"spec":{{"template":{{"spec":{{"terminationGracePeriodSeconds":{cluster.start_s}}}}}}}}}'"""
    )
    yield judged("activator grace", grace_s >= cluster.start_s, f"{grace_s} s", why, fix, "warn")


def autoscaler(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check `config-autoscaler`."""
    namespace, name = cluster.serving_namespace, "config-autoscaler"
    found = config(kubernetes, namespace, name)
    key = "allow-zero-initial-scale"
    why = "steps are made with initial-scale 0; without this Knative refuses them, and would start a GPU pod at each deploy"
    value = found.get(key, "false")
    yield judged(key, value.lower() == "true", value, why, patch(namespace, name, key, "true"))
    key, value = "enable-scale-to-zero", found.get("enable-scale-to-zero", "true")
    why = "an idle step would hold a GPU, and be paid for, forever"
    yield judged(key, value.lower() == "true", value, why, patch(namespace, name, key, "true"))
    key, value = "target-burst-capacity", found.get("target-burst-capacity", "211")
    why = "with -1 the autoscaler does not ask pods how busy they are. Steps set their own, other Services do not"
    yield judged(key, _number(value, 211) != -1, value, why, patch(namespace, name, key, "211"), "warn")
    key, value = "max-scale-limit", found.get("max-scale-limit", "0")
    limit = _number(value, 0)
    why = f"a step with max_workers above {limit:g} (the default is 16) is refused"
    yield judged(key, limit == 0 or limit >= 16, value, why, patch(namespace, name, key, "1000"), "warn")


def scheduling(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check `config-deployment`."""
    namespace, key = cluster.serving_namespace, "pod-is-always-schedulable"
    value = config(kubernetes, namespace, "config-deployment").get(key, "false")
    why = "a pod that waits for a GPU node to be made counts as a failed Revision without it"
    yield judged(key, value.lower() == "true", value, why, patch(namespace, "config-deployment", key, "true"))


def ingress(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check that events come in through the namespace that the network policies let in, and the domain."""
    namespace = cluster.serving_namespace
    kind = config(kubernetes, namespace, "config-network").get("ingress-class", "istio.ingress.networking.knative.dev")
    usual = _INGRESS_NAMESPACES.get(kind.partition(".")[0], ())
    there = kubernetes.get(f"/api/v1/namespaces/{cluster.ingress_namespace}") is not None
    why = "each step's NetworkPolicy lets in the ingress of ingress_namespace only: from elsewhere no event arrives"
    right = there and (not usual or cluster.ingress_namespace in usual)
    saw = f"{kind}; ingress_namespace {cluster.ingress_namespace}{'' if there else ', which does not exist'}"
    fix = f"write ingress_namespace: {usual[0] if usual else 'NAMESPACE'} in cluster.yaml and run: trainlet install"
    yield judged("ingress", right, saw, why, fix)
    domains = sorted(key for key in config(kubernetes, namespace, "config-domain") if not key.startswith("_"))
    saw = ", ".join(domains) or "example.com (the default)"
    yield Finding("domain", "ok", f"{saw}; steps are cluster-local and need none")


def _number(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default
