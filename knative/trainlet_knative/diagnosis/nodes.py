"""The cluster under Knative: nodes with GPUs, storage classes, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from trainlet.core.clocks import Clock
from trainlet_knative.catalogues import Placement
from trainlet_knative.clusters import Cluster
from trainlet_knative.connections import Kubernetes
from trainlet_knative.diagnosis.findings import Finding, judged

_SKEW_S = 5.0
_PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def gpus(kubernetes: Kubernetes, cluster: Cluster) -> Iterator[Finding]:
    """Check, for each SKU of the catalogue, that nodes have its labels and offer its resource."""
    if cluster.virtual_gpus:
        yield Finding("GPU nodes", "ok", "virtual_gpus: true; no GPU is asked for, and the books say so")
        return
    nodes = kubernetes.select("/api/v1/nodes")
    with_gpus = [node for node in nodes if any(_count(node, name) for name in _allocatable(node) if _is_gpu(name))]
    if cluster.gpus.gpus is None:
        yield from _unlisted(with_gpus, cluster)
        return
    for sku in cluster.gpus.gpus:
        yield _offered(sku, cluster.gpus.placement(sku), nodes)
    for name in sorted({place.runtime_class for place in cluster.gpus.gpus.values() if place.runtime_class}):
        there = kubernetes.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}") is not None
        why = "the GPU catalogue names it; pods of a class that does not exist are refused"
        fix = f"create the RuntimeClass {name} (the GPU operator does), or take it out of the catalogue"
        yield judged(f"runtime class {name}", there, "there" if there else "not there", why, fix)


def _unlisted(nodes: list[dict[str, Any]], cluster: Cluster) -> Iterator[Finding]:
    """Check a cluster whose catalogue offers everything: its GPU nodes must carry the labels that the defaults ask for."""
    keys = list(cluster.gpus.defaults.node_selector)
    if not nodes:
        why = "a step with gpu= waits until a node has one; where nodes are made on demand that is how it should be"
        fix = f"install the device plugin ({_PLUGIN}), or write virtual_gpus: true for a cluster without GPUs"
        yield Finding("GPU nodes", "warn", "no node offers a GPU", why, fix)
        return
    bare = [node for node in nodes if any(key not in _labels(node) for key in keys)]
    total = sum(_count(node, name) for node in nodes for name in _allocatable(node) if _is_gpu(name))
    saw = f"{len(nodes)} nodes with {total} devices"
    if not bare:
        yield Finding("GPU nodes", "ok", saw)
        return
    node = bare[0]
    product = _labels(node).get("nvidia.com/gpu.product")
    said = f"{saw}; {len(bare)} without the label {', '.join(keys)}" + (f" (a {product})" if product else "")
    fix = f"kubectl label node {node['metadata']['name']} {keys[0]}=SKU, such as A100-80GB; or write gpus.yaml"
    yield Finding("GPU nodes", "bad", said, "a step runs only on nodes that carry the SKU of its GPU", fix)


def _offered(sku: str, place: Placement, nodes: list[dict[str, Any]]) -> Finding:
    resource = str(place.resource)
    labelled = [node for node in nodes if place.node_selector.items() <= _labels(node).items()]
    count = sum(_count(node, resource) for node in labelled)
    selector = ",".join(f"{key}={value}" for key, value in place.node_selector.items()) or "any label"
    check = f"GPU {sku}"
    if count:
        return Finding(check, "ok", f"{count} x {resource} on {len(labelled)} nodes with {selector}")
    if not labelled:
        why = "a step that asks for it waits until there is such a node; where nodes are made on demand that is right"
        return Finding(check, "warn", f"no node with {selector}", why, f"kubectl label node NODE {selector}")
    untolerated = f"none of the {len(labelled)} nodes with {selector} offers {resource}"
    fix = f"install the device plugin there ({_PLUGIN}); for a MIG slice set its strategy to mixed"
    return Finding(check, "bad", untolerated, "pods that ask for it are never placed", fix)


def storage(kubernetes: Kubernetes) -> Iterator[Finding]:
    """Check that there is a default StorageClass."""
    found = kubernetes.select("/apis/storage.k8s.io/v1/storageclasses")
    names = [one["metadata"]["name"] for one in found]
    default = [one for one in found if one["metadata"].get("annotations", {}).get(_IS_DEFAULT) == "true"]
    saw = ", ".join(names) or "none"
    why = "the trial overlay keeps its database on a volume of the default class; production uses PostgreSQL"
    fix = f"kubectl annotate storageclass {names[0] if names else 'NAME'} {_IS_DEFAULT}=true"
    yield judged("storage class", bool(default), saw if default else f"{saw}; no default", why, fix, "warn")


def clocks(kubernetes: Kubernetes, clock: Clock) -> Iterator[Finding]:
    """Compare this machine's clock and each node's with the API server's."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reviewed = kubernetes.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    server_s = _seconds(reviewed["metadata"]["creationTimestamp"])
    here_s = clock.wall_ns() / 1e9
    why = "leases, prices and tokens are bound to time: wrong clocks bill wrong seconds"
    fix = "run an NTP client, such as chrony, there"
    yield judged("clock", abs(here_s - server_s) <= _SKEW_S, f"{here_s - server_s:+.1f} s here", why, fix, "warn")
    leases = kubernetes.select("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    ahead = {
        one["metadata"]["name"]: _seconds(one["spec"]["renewTime"]) - server_s
        for one in leases
        if one.get("spec", {}).get("renewTime")
    }
    wrong = {name: by for name, by in ahead.items() if by > _SKEW_S}  # behind may be a node that is only slow to renew
    saw = ", ".join(f"{name} {by:+.1f} s" for name, by in sorted(wrong.items())) or f"{len(ahead)} nodes, none ahead"
    yield judged("clocks of nodes", not wrong, saw, why, fix)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _labels(node: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    return labels


def _allocatable(node: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = node.get("status", {}).get("allocatable") or {}
    return found


def _count(node: dict[str, Any], resource: str) -> int:
    text = str(_allocatable(node).get(resource, "0"))
    return int(text) if text.isdigit() else 0


def _is_gpu(resource: str) -> bool:
    return resource.startswith(("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu"))
