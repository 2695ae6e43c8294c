"""The GPU catalogue of a cluster: which devices its nodes have, and how a pod asks for each.

Kubernetes knows resource names, node labels and taints; people know "A100". A cluster's admin writes between the two in
one YAML file. Without a file every SKU that trainlet knows may be asked for, on nodes labelled with it. The catalogue
must not know prices or steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator, model_validator

from trainlet.core import gpus as known
from trainlet.core import placements
from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.specs import GpuRequest

SKU_LABEL = "trainlet.dev/gpu-sku"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}")
_RESOURCE = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"


class Toleration(placements.Toleration):
    """A taint that an admin names: none tolerates everything."""

    key: str


class Placement(Value):
    """How pods get a device: its resource, the nodes that have it, what those nodes are tainted with.

    Values of `node_selector` may hold `{model}` and `{profile}`, the two parts of the SKU. `resource` None means
    `nvidia.com/gpu`, and `nvidia.com/mig-PROFILE` for a slice.
    """

    resource: str | None = Field(default=None, pattern=_RESOURCE)
    node_selector: dict[str, str] = {SKU_LABEL: "{model}"}
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu", effect="NoSchedule"),)
    runtime_class: str | None = None

    @field_validator("node_selector")
    @classmethod
    def _labels(cls, selector: dict[str, str]) -> dict[str, str]:
        for key, value in selector.items():
            plain = value.replace("{model}", "").replace("{profile}", "")
            if not placements.LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(plain):
                raise ValueError(f"{key}={value} is no node label; the placeholders are {{model}} and {{profile}}")
        return selector


class Catalogue(Value):
    """The devices of a cluster. `gpus` maps a SKU to what differs from `defaults`; None offers every known SKU."""

    defaults: Placement = Placement()
    gpus: dict[str, Placement] | None = None

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, raw: Any) -> Any:
        """Lay each entry over the defaults, so that an entry says only what is different."""
        if not isinstance(raw, Mapping) or not isinstance(raw.get("gpus"), Mapping):
            return raw
        defaults = raw.get("defaults") or {}
        filled: dict[Any, Any] = {}
        for sku, entry in raw["gpus"].items():
            if entry is not None and not isinstance(entry, Mapping | Placement):
                raise ValueError(f"gpus.{sku}: write what differs from defaults, such as resource:, or nothing")
            if isinstance(entry, Placement) or not isinstance(defaults, Mapping):
                filled[sku] = entry
            else:
                filled[sku] = {**defaults, **(entry or {})}
        return {**raw, "gpus": filled}

    @field_validator("gpus")
    @classmethod
    def _skus(cls, gpus: dict[str, Placement] | None) -> dict[str, Placement] | None:
        if gpus is None:
            return None
        found: dict[str, Placement] = {}
        for name, placement in gpus.items():
            try:
                sku = known.canonical_sku(name)
            except UserError as error:
                raise ValueError(str(error)) from None
            if sku in found:
                raise ValueError(f"{name} is {sku}, which is there twice; remove one")
            found[sku] = placement
        if not found:
            raise ValueError("gpus is empty; leave it out to offer every GPU, or set virtual_gpus: true without GPUs")
        return found

    def offered(self, wanted: Sequence[GpuRequest]) -> tuple[GpuRequest, ...]:
        """Return the alternatives that this cluster has, in their order; UserError when it has none of them."""
        if self.gpus is None:
            return tuple(wanted)
        have = tuple(one for one in wanted if one.sku in self.gpus)
        if wanted and not have:
            asked = " or ".join(one.sku for one in wanted)
            raise UserError(
                f"gpu= asks for {asked}, which this cluster's GPU catalogue lacks. "
                f"{nearest(wanted[0].sku, list(self.gpus))} An admin adds devices to the catalogue."
            )
        return have

    def placement(self, sku: str) -> Placement:
        """Return how to ask for a SKU, its placeholders filled in."""
        chosen = self.defaults if self.gpus is None else self.gpus[sku]
        model, _, profile = sku.partition("/")
        resource = chosen.resource or (f"nvidia.com/mig-{profile}" if profile else "nvidia.com/gpu")
        selector = {
            key: value.replace("{model}", model).replace("{profile}", profile)
            for key, value in chosen.node_selector.items()
        }
        return chosen.model_copy(update={"resource": resource, "node_selector": selector})
