"""Conditions that KFP can decide by itself, without a pod: one typed channel compared with one plain constant."""

from __future__ import annotations

from typing import Any

from trainlet.core import graphs
from trainlet_pipelines.kubeflow.wiring import Wiring
from trainlet_pipelines.pods import shapes
from trainlet_pipelines.values import COMPARISONS


def native(condition: graphs.Condition, wiring: Wiring) -> Any:
    """Return kfp's condition, or None when a task of ours must decide."""
    if condition.operator == "truthy":
        left, right, name = condition.operands[0], True, "=="
    elif condition.operator in COMPARISONS and isinstance(condition.operands[1], graphs.Constant):
        left, right, name = condition.operands[0], condition.operands[1].value, condition.operator
    else:
        return None
    if not isinstance(left, graphs.Parameter | graphs.Output | graphs.Item):
        return None
    channel, whole = wiring.channel(left)
    if not whole or not _comparable(channel.shape, right):
        return None
    return COMPARISONS[name](channel.value, right)


def _comparable(shape: shapes.Shape, value: Any) -> bool:
    """Say whether KFP compares as Python does: numbers with numbers, and text that needs no quoting."""
    if shape in ("int", "float"):
        return type(value) in (int, float) and shapes.survives(value)
    if shape == "bool":
        return type(value) is bool
    plain = isinstance(value, str) and value != "" and all(one.isalnum() or one in "-_./ " for one in value)
    return shape == "str" and plain
