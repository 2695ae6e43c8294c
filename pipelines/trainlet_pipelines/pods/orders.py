"""What a pod of a compiled pipeline is told to do: the JSON behind `--step`, written by the compiler.

It holds digests, never code, and nothing about a single run, so KFP's cache finds the same task again and misses when
the code changes. Inputs that KFP passes under their own name are not repeated here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pydantic import ValidationError

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.specs import FunctionSpec, Name, Sha256

FORMAT = 1
Leaf = graphs.Parameter | graphs.Output | graphs.Item | graphs.Collected | graphs.RunStatus


class Export(Value):
    """An output: a part of the result, and how KFP gets it.

    `kind` is `encoded` (JSON text), a shape's name, `file:Model` (an artifact with the content, for components that are
    not trainlet's), `reference:Model` (one that only says where it is), or `metrics`, `report`, `curve`.
    """

    path: tuple[str | int, ...] = ()
    kind: str = "encoded"


class Order(Value):
    """One task. `ports` maps KFP inputs to shapes, `sources` what expressions read to ports, `inputs` the expressions.

    `step`: do a function, here if there is a `spec`, else on the training API. `value`, `condition`, `items`: evaluate
    the one input `value`.
    """

    format: int = FORMAT
    kind: Literal["step", "value", "condition", "items"] = "step"
    function: Name | None = None
    digest: Sha256 | None = None
    spec: FunctionSpec | None = None
    ports: dict[str, Any] = {}
    sources: dict[str, str] = {}
    inputs: dict[str, graphs.Expression] = {}
    outputs: dict[str, Export] = {"output": Export()}


def text(order: Order) -> str:
    """Return the argument. Neither KFP nor Argo finds a placeholder in it, whatever the user's strings say."""
    data = order.model_dump(mode="json", exclude_defaults=True, exclude={"inputs"})
    if order.inputs:  # whole: what tells expressions apart is the default of a field
        data["inputs"] = {name: value.model_dump(mode="json") for name, value in order.inputs.items()}
    raw = json.dumps(data, separators=(",", ":"), sort_keys=True)
    return raw.replace("{{", "\\u007b\\u007b")


def read(argument: str) -> Order:
    """Read the argument; raises UserError for one of another version."""
    try:
        raw = json.loads(argument)
        known = raw.get("format", FORMAT) if isinstance(raw, dict) else FORMAT
        if known != FORMAT:
            raise UserError(f"The step has format {known}, this image reads {FORMAT}. Use the image of that trainlet.")
        return Order.model_validate(raw)
    except (ValueError, ValidationError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"--step is no order that this image can read: {error}. Compile the pipeline again.") from None


def leaves(expression: graphs.Expression) -> Iterator[Leaf]:
    """Yield what an expression reads from outside: parameters, outputs, items, collected lists, the run's status."""
    match expression:
        case graphs.ListOf(items=parts) | graphs.Condition(operands=parts):
            for part in parts:
                yield from leaves(part)
        case graphs.DictOf(items=named):
            for part in named.values():
                yield from leaves(part)
        case graphs.Constant():
            return
        case _:
            yield expression


def leaf_key(leaf: Leaf) -> str:
    """Name the channel a leaf reads; leaves that differ only in their path share it."""
    match leaf:
        case graphs.Parameter(name=name):
            return f"parameter:{name}"
        case graphs.Output(node=node):
            return f"output:{node}"
        case graphs.Item(scope=scope):
            return f"item:{scope}"
        case graphs.Collected(scope=scope, value=value):
            return f"collected:{scope}:{value.model_dump_json()}"
        case graphs.RunStatus():
            return "status"


def mapped(expression: graphs.Expression, change: Callable[[Leaf], graphs.Expression]) -> graphs.Expression:
    """Return the expression with each of its leaves changed, those of collected values too."""
    match expression:
        case graphs.ListOf(items=parts):
            return graphs.ListOf(items=tuple(mapped(part, change) for part in parts))
        case graphs.Condition(operator=operator, operands=parts):
            return graphs.Condition(operator=operator, operands=tuple(mapped(part, change) for part in parts))
        case graphs.DictOf(items=named):
            return graphs.DictOf(items={name: mapped(part, change) for name, part in named.items()})
        case graphs.Collected(scope=scope, value=value):
            return graphs.Collected(scope=scope, value=mapped(value, change))
        case graphs.Constant():
            return expression
        case _:
            return change(expression)
