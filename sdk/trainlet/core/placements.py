"""On which nodes of a cluster a step may run, in Kubernetes' own words. A machine without nodes has nothing to choose.

What is written here is checked for its form only: which labels and taints there are is known to the cluster alone.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from trainlet.core.models import Natural, Value

LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
AFFINITIES = ("nodeAffinity", "podAffinity", "podAntiAffinity")


class Toleration(Value):
    """A taint that a pod may live with, spelled as Kubernetes spells it; without a key: every taint."""

    model_config = ConfigDict(populate_by_name=True)

    key: str | None = None
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Natural | None = Field(default=None, alias="tolerationSeconds")

    @model_validator(mode="after")
    def _value_where_it_counts(self) -> Toleration:
        if (self.operator == "Equal") != (self.value is not None):
            raise ValueError("operator Equal needs a value, and Exists (the default) has none")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds needs effect: NoExecute")
        return self


class Nodes(Value):
    """The nodes that somebody chose for a step, beside what its GPU asks for."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] = {}

    @field_validator("node_selector")
    @classmethod
    def _labels(cls, selector: dict[str, str]) -> dict[str, str]:
        for key, value in selector.items():
            if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
                raise ValueError(f"{key}={value} is no node label")
        return selector

    @field_validator("affinity")
    @classmethod
    def _known(cls, affinity: dict[str, Any]) -> dict[str, Any]:
        for name, rules in affinity.items():
            if name not in AFFINITIES or not isinstance(rules, dict):
                raise ValueError(f"affinity has {name}; Kubernetes has {', '.join(AFFINITIES)}, each a mapping")
        return affinity
