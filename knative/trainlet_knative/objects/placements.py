"""Where a function's pods may run, and which devices they ask for."""

from __future__ import annotations

from typing import Any

from trainlet.core.errors import UserError
from trainlet.core.placements import Nodes, Toleration
from trainlet.core.specs import FunctionSpec, GpuRequest
from trainlet_knative.catalogues import Catalogue, Placement
from trainlet_knative.clusters import Cluster
from trainlet_knative.objects.names import Object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def gpu_limits(catalogue: Catalogue, wanted: tuple[GpuRequest, ...]) -> dict[str, str]:
    """Return the extended resource of a GPU request: whole devices, or slices of one MIG profile.

    Quantities are texts, as Kubernetes keeps them. Alternatives must be the same resource in the same number: a pod
    names one. Raises UserError otherwise, and for a GPU that the catalogue lacks.
    """
    have = catalogue.offered(wanted)
    if not have:
        return {}
    first = {str(catalogue.placement(have[0].sku).resource): str(have[0].count)}
    for one in have[1:]:
        if {str(catalogue.placement(one.sku).resource): str(one.count)} != first:
            raise UserError(
                f"gpu= lists {have[0].sku}:{have[0].count} and {one.sku}:{one.count}, which a pod cannot ask for as "
                "alternatives. On a cluster list devices of the same number, all whole or all of one slice."
            )
    return first


def placement(cluster: Cluster, spec: FunctionSpec) -> Object:
    """Return the part of a pod's spec that says where it may run."""
    have = () if cluster.virtual_gpus else cluster.gpus.offered(spec.resources.gpus)
    places = [cluster.gpus.placement(one.sku) for one in have]
    chosen = spec.nodes or Nodes()
    found: Object = _both(_nodes(places), chosen)
    tolerations: list[Toleration] = _when_a_node_is_lost(cluster)
    tolerations += [*(one for place in places for one in place.tolerations), *chosen.tolerations]
    if spec.checkpoint is not None:
        tolerations += cluster.spot
    if tolerations:
        found["tolerations"] = [_spelled(one) for one in dict.fromkeys(tolerations)]
    classes = {place.runtime_class for place in places}
    if len(classes) > 1:
        names = ", ".join(sorted(str(name) for name in classes))
        raise UserError(f"gpu= lists devices of the runtime classes {names}; a pod has one. List devices of one class.")
    runtime_class = next(iter(classes), None)
    return found if runtime_class is None else {**found, "runtimeClassName": runtime_class}


def _nodes(places: list[Placement]) -> Object:
    """Return a node selector, or an affinity where alternatives are on different nodes."""
    selectors: list[dict[str, str]] = []
    for place in places:
        if place.node_selector not in selectors:
            selectors.append(place.node_selector)
    if not selectors or {} in selectors:  # no alternatives, or one that any node may have
        return {}
    if len(selectors) == 1:
        return {"nodeSelector": selectors[0]}
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]}
        for selector in selectors
    ]
    required = {_REQUIRED: {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _both(catalogue: Object, chosen: Nodes) -> Object:
    """Return where a pod may run that must fit the catalogue and what somebody chose for the step."""
    found = dict(catalogue)
    selector: dict[str, str] = {**catalogue.get("nodeSelector", {})}
    for key, value in chosen.node_selector.items():
        if selector.setdefault(key, value) != value:
            raise UserError(
                f"The node selector {key}={value} contradicts the GPU catalogue, which has {key}={selector[key]} for "
                "this GPU: no node is both. Remove the selector, or ask for the other GPU."
            )
    if selector:
        found["nodeSelector"] = selector
    if chosen.affinity:
        found["affinity"] = {**chosen.affinity}
        # Terms are alternatives: each of the catalogue's together with each that was chosen.
        others = _terms(chosen.affinity) or [{}]
        both = [_together(one, other) for one in _terms(catalogue.get("affinity", {})) for other in others]
        if both:
            node = {**chosen.affinity.get("nodeAffinity", {}), _REQUIRED: {"nodeSelectorTerms": both}}
            found["affinity"]["nodeAffinity"] = node
    return found


def _terms(affinity: Object) -> list[dict[str, Any]]:
    return list(affinity.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms", []))


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: [*one.get(key, []), *other.get(key, [])] for key in {**one, **other}}


def _when_a_node_is_lost(cluster: Cluster) -> list[Toleration]:
    if cluster.unreachable_s is None:
        return []
    return [
        Toleration(key=f"node.kubernetes.io/{why}", effect="NoExecute", toleration_seconds=cluster.unreachable_s)
        for why in ("unreachable", "not-ready")
    ]


def _spelled(toleration: Toleration) -> Object:
    return toleration.model_dump(by_alias=True, exclude_none=True)
