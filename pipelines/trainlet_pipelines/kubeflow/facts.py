"""What the compiler is told about a step: data, so that this room never holds a step itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainlet.core.specs import FunctionSpec
from trainlet_pipelines.pods.shapes import Shape


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step, or a native KFP component.

    `shapes` are those of its inputs, `defaults` the values of those that have one (`optional` lists them all), `returns`
    the shape of its result, `reports` whether it has a context and so metrics. `native` is the kfp component.
    """

    label: str
    description: str = ""
    spec: FunctionSpec | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    returns: Shape = "text"
    reports: bool = False
    native: Any = None

    @property
    def gpu(self) -> bool:
        """Say whether it is done by the training API."""
        return self.spec is not None and bool(self.spec.resources.gpus)
