"""Native KFP components inside of a pipeline of trainlet's: what they take and give, and how they are called.

An output of a native component is known as the node `<node>.<output>`, so that the rest of the compiler sees a channel
like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.pods import orders, shapes

if TYPE_CHECKING:
    from trainlet_pipelines.kubeflow.builders import Builder

_TYPES: dict[str, shapes.Shape] = {
    "Integer": "int",
    "Float": "float",
    "Double": "float",
    "Boolean": "bool",
    "String": "str",
    "List": ["list", "any"],
    "Dict": ["dict", "any"],
}


def shape_of(kfp_name: str) -> shapes.Shape:
    """Return the shape of one of kfp's type names, such as `Integer` or `system.Dataset@0.0.1`."""
    if kfp_name.startswith("system."):
        return ["artifact", kfp_name.removeprefix("system.").partition("@")[0]]
    return _TYPES.get(kfp_name, "str")


def inputs(component: Any) -> dict[str, shapes.Shape]:
    """Return the inputs of a kfp component."""
    return {name: shape_of(str(one.type)) for name, one in (component.component_spec.inputs or {}).items()}


def outputs(component: Any) -> dict[str, shapes.Shape]:
    """Return the outputs of a kfp component."""
    return {name: shape_of(str(one.type)) for name, one in (component.component_spec.outputs or {}).items()}


def export_kind(shape: shapes.Shape) -> str:
    """Return how a step must hand out a value for a component that takes this shape."""
    if shapes.is_artifact(shape):
        return f"file:{shape[1] if shape[1] in ('Dataset', 'Model') else 'Artifact'}"
    return str(shape if isinstance(shape, str) else shape[0])


def given_shape(kind: str) -> shapes.Shape:
    """Return the shape of what a step hands out as this kind."""
    form, _, artifact = kind.partition(":")
    return ["artifact", artifact] if artifact else [form, "any"] if form in ("list", "dict") else form


def rewritten(graph: graphs.Graph, facts: Mapping[str, StepFacts]) -> graphs.Graph:
    """Return the graph with each result of a native component replaced by the output that is meant."""
    native = {node.id: facts[node.function] for node in graph.nodes if facts[node.function].native is not None}
    if not native:
        return graph

    def change(leaf: orders.Leaf) -> graphs.Expression:
        if isinstance(leaf, graphs.Output) and leaf.node in native:
            name, path = _output_of(native[leaf.node], leaf)
            return graphs.Output(node=f"{leaf.node}.{name}", path=path)
        return leaf

    nodes = tuple(
        node.model_copy(update={"inputs": {name: orders.mapped(one, change) for name, one in node.inputs.items()}})
        for node in graph.nodes
    )
    scopes = tuple(
        scope.model_copy(
            update={
                "condition": None if scope.condition is None else orders.mapped(scope.condition, change),
                "items": None if scope.items is None else orders.mapped(scope.items, change),
            }
        )
        for scope in graph.scopes
    )
    return graph.model_copy(update={"nodes": nodes, "scopes": scopes})


def _output_of(facts: StepFacts, leaf: graphs.Output) -> tuple[str, tuple[str | int, ...]]:
    known = list(outputs(facts.native))
    if leaf.path and leaf.path[0] in known:
        return str(leaf.path[0]), leaf.path[1:]
    if len(known) == 1:
        return known[0], leaf.path
    have = ", ".join(known) or "none"
    asked = f"has no output {leaf.path[0]!r}" if leaf.path else f"has {len(known)} outputs, and none is named"
    raise UserError(f'The KFP component {facts.label} {asked}. Write result["..."] with one of: {have}.')


def call(builder: Builder, node: graphs.Node, facts: StepFacts) -> Any:
    """Call a native component inside of kfp's trace; raises UserError for what it cannot take."""
    from kfp.dsl.types.type_utils import InconsistentTypeException

    known = inputs(facts.native)
    arguments = {
        name: _argument(builder, node, name, expression, known[name]) for name, expression in node.inputs.items()
    }
    try:
        task = facts.native(**arguments)
    except (TypeError, ValueError, InconsistentTypeException) as error:
        raise UserError(f"The KFP component {node.id} refuses its arguments: {error}") from error
    task.set_display_name(node.id)
    return task


def _same(given: shapes.Shape, taken: shapes.Shape) -> bool:
    """Say whether kfp lets a channel of one shape into an input of another as it is."""
    if isinstance(given, list) and isinstance(taken, list):
        return bool(given[0] == taken[0])
    return bool(given == taken)


def _argument(
    builder: Builder, node: graphs.Node, name: str, expression: graphs.Expression, shape: shapes.Shape
) -> Any:
    wiring = builder.wiring
    kind = export_kind(shape)
    handed = wiring.handed(node, name, expression)
    match expression:
        case graphs.Constant(value=value):
            return value
        case graphs.Output(node=giver, path=path) if handed is not None:
            if not path:
                wiring.check(f"{node.id}({name}=...)", expression, wiring.given(giver), shape)
            return wiring.channels[handed[0]].value
        case graphs.Parameter() | graphs.Output() | graphs.Item():
            channel, whole = wiring.channel(expression)
            wiring.check(f"{node.id}({name}=...)", expression, channel.shape if whole else "text", shape)
            if whole and _same(channel.shape, shape):
                return channel.value
    if shapes.is_artifact(shape):
        raise UserError(
            f"{node.id}({name}=...) is a KFP component that takes a file. Give it the result of a step, whole."
        )
    return builder.evaluate(f"{node.id}-{name}".replace("_", "-"), "value", expression, kind, ())
