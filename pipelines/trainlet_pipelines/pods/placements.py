"""What somebody wrote on the task in KFP (limits, node selectors, tolerations, affinity): the GPU work gets it, and the
waiting pod does not.

KFP hands it over as the `task_config` input. A change makes another version of the function, under a name of its own;
what has no counterpart is said in the task's log, never ignored in silence.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from trainlet.core import durations, gpus
from trainlet.core.errors import UserError
from trainlet.core.models import Reply
from trainlet.core.placements import Nodes
from trainlet.core.specs import FunctionSpec, GpuRequest, dns_label

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
SLICES = "nvidia.com/mig-"
GPU_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")


class Limits(Reply):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class TaskConfig(Reply):
    """The parts of a pod's description that KFP passes through."""

    resources: Limits | None = None
    nodeSelector: dict[str, str] | None = None  # noqa: N815 - as Kubernetes spells it
    tolerations: list[dict[str, Any]] | None = None
    affinity: dict[str, Any] | None = None
    env: list[dict[str, Any]] | None = None


def apply(spec: FunctionSpec, config: TaskConfig) -> tuple[FunctionSpec, list[str]]:
    """Return the function as it is wanted, and what could not be applied. Raises UserError for nonsense."""
    asked = {**(config.resources.requests if config.resources else {})}
    asked.update(config.resources.limits if config.resources else {})
    left: list[str] = []
    requests = spec.resources.gpus
    selector: dict[str, str] = {}
    for label, value in (config.nodeSelector or {}).items():
        sku = _sku(value) if label in GPU_LABELS else None
        if sku is None:
            selector[label] = value
        else:
            requests = (GpuRequest(sku=sku, count=requests[0].count if requests else 1),)
    changes: dict[str, Any] = {}
    for name, value in asked.items():
        if name in GPU_RESOURCES:
            count = _whole(value, f"the limit {name}")
            requests = tuple(dict.fromkeys(one.model_copy(update={"count": count}) for one in requests))
        elif name.startswith(SLICES):
            count, profile = _whole(value, f"the limit {name}"), name.removeprefix(SLICES)
            models = dict.fromkeys(one.sku.partition("/")[0] for one in requests)
            requests = tuple(GpuRequest(sku=gpus.canonical_sku(f"{one}/{profile}"), count=count) for one in models)
        elif name == "cpu":
            changes["cpu"] = _cores(value)
        elif name == "memory":
            changes["memory_bytes"] = durations.parse_size_bytes(value, "the memory limit in KFP ")
        else:
            left.append(f"limit {name}={value}")
    resources = spec.resources.model_copy(update={**changes, "gpus": requests})
    nodes = _nodes(selector, config) or spec.nodes
    if (resources, nodes) == (spec.resources, spec.nodes):
        return spec, left
    before = spec.resources.gpus[0].count if spec.resources.gpus else 1
    ranks = requests[0].count if spec.ranks == before > 1 and requests else spec.ranks
    changed = spec.model_copy(update={"resources": resources, "ranks": ranks, "nodes": nodes})
    return changed.model_copy(update={"name": dns_label(f"{spec.name[:54]}-{changed.digest()[:8]}")}), left


def _nodes(selector: dict[str, str], config: TaskConfig) -> Nodes | None:
    """Return the nodes that somebody chose, or None. Raises UserError for what Kubernetes would refuse."""
    if not (selector or config.tolerations or config.affinity):
        return None
    given = {
        "node_selector": selector,
        "tolerations": [_toleration(one) for one in config.tolerations or []],
        "affinity": {name: rules for name, rules in (config.affinity or {}).items() if rules},
    }
    try:
        return Nodes.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"What was written in KFP for this step is wrong: {where}: {first['msg']}.") from None


def _toleration(given: dict[str, Any]) -> dict[str, Any]:
    """Spell out what Kubernetes takes for granted: without an operator, a toleration is for one value."""
    found = {name: value for name, value in given.items() if value not in (None, "")}
    if found.get("operator", "Equal" if "key" in found else "Exists") == "Equal":
        return {"value": "", **found, "operator": "Equal"}
    return {name: value for name, value in found.items() if name != "value"} | {"operator": "Exists"}


def _sku(product: str) -> str | None:
    """Return the SKU of a node label's value, such as `NVIDIA-A100-SXM4-80GB` or `nvidia-tesla-t4`."""
    text = re.sub(r"^(nvidia|tesla|amd)-", "", re.sub(r"^(nvidia|amd)-", "", product.lower()))
    text = re.sub(r"-(sxm\d?|pcie|hbm\d\w?|nvl)\b", "", text)
    try:
        return gpus.canonical_sku(text)
    except UserError:
        return None


def _whole(value: str, what: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", str(value)):
        raise UserError(f"{what} is {value!r}; write a whole number from 1.")
    return int(value)


def _cores(value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", str(value))
    if match is None:
        raise UserError(f"The CPU limit in KFP is {value!r}; write cores such as 2 or 500m.")
    return float(match[1]) / 1000 if match[2] else float(match[1])
