"""Which kfp channel each expression of a graph reads, and through which port of a component.

An input that is one channel or one scalar becomes a port of its own name, so that KFP's page shows it; anything else is
an expression inside the order, whose leaves are the ports.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow import natives
from trainlet_pipelines.kubeflow.components import RESERVED, STATUS, Port
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.pods import orders, shapes

Read = orders.Leaf | str
"""What somebody reads: a leaf of an expression, or the kind of what a step hands to a native component."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A kfp channel and the shape of what comes through it."""

    original: Any
    shape: shapes.Shape
    collected: bool = False

    @property
    def value(self) -> Any:
        """Return the channel for one reader: kfp changes a `dsl.Collected` while it compiles what reads it."""
        return copy.copy(self.original) if self.collected else self.original


class Wiring:
    """The channels of one compilation, and what each node hands out."""

    def __init__(
        self, graph: graphs.Graph, facts: Mapping[str, StepFacts], parameters: Mapping[str, shapes.Shape]
    ) -> None:
        self.graph, self.facts, self.parameters = graph, facts, parameters
        self.channels: dict[str, Channel] = {}
        self.exports = _exports(graph, facts)
        self.parts: dict[tuple[str, str], Any] = {}
        self._functions = {node.id: node.function for node in graph.nodes}

    def add(self, key: str, value: Any, shape: shapes.Shape) -> None:
        """Make a channel known by the key of the leaves that read it."""
        self.channels[key] = Channel(value, shape, collected=key.startswith("collected:"))

    def add_task(self, node: graphs.Node, task: Any) -> None:
        """Make the outputs of a task known."""
        native = self.facts[node.function].native
        if native is None:
            self.add(f"output:{node.id}", task.outputs["output"], "encoded")
            for name, export in self.exports.get(node.id, {}).items():
                self.add(f"export:{node.id}:{name}", task.outputs[name], natives.given_shape(export.kind))
            return
        for name, shape in natives.outputs(native).items():
            self.add(f"output:{node.id}.{name}", task.outputs[name], shape)

    def channel(self, leaf: orders.Leaf) -> tuple[Channel, bool]:
        """Return the channel of a leaf, and whether it is all that the leaf means (no path is left to follow)."""
        key = orders.leaf_key(leaf)
        channel = Channel(None, STATUS) if key == STATUS and key not in self.channels else self.channels[key]
        return channel, not getattr(leaf, "path", ())

    def reads(self, part: graphs.Node | graphs.Scope) -> Iterator[tuple[str, Read]]:
        """Yield what a part itself reads, by the key of its channel."""
        native = isinstance(part, graphs.Node) and self.facts[part.function].native is not None
        for name, expression in part.inputs.items() if isinstance(part, graphs.Node) else enumerate(expressions(part)):
            handed = self.handed(part, str(name), expression) if native and isinstance(part, graphs.Node) else None
            if handed is not None:
                yield handed
                continue
            for leaf in deep_leaves(expression):
                yield orders.leaf_key(leaf), leaf

    def handed(self, node: graphs.Node, name: str, expression: graphs.Expression) -> tuple[str, str] | None:
        """Return the channel and the kind of what a step hands to an input of a native component."""
        if not isinstance(expression, graphs.Output) or expression.node not in self.exports:
            return None
        kind = natives.export_kind(natives.inputs(self.facts[node.function].native)[name])
        return f"export:{expression.node}:{export_name(kind, expression.path)}", kind

    def static_shape(self, key: str, read: Read) -> shapes.Shape:
        """Return the shape of what a channel will bring, before there is one."""
        match read:
            case str():
                return natives.given_shape(read)
            case graphs.Parameter(name=name):
                return self.parameters[name]
            case graphs.Item(scope=scope):
                return self.item_shape(next(one for one in self.graph.scopes if one.id == scope))
            case graphs.Collected():
                return ["list", "encoded"]
            case graphs.RunStatus():
                return STATUS
            case graphs.Output(node=giver):
                return self.given(giver) if "." in giver else "encoded"

    def item_shape(self, scope: graphs.Scope) -> shapes.Shape:
        """Return the shape of the items of a loop: KFP's own for a list of scalars that is a parameter."""
        if (
            isinstance(scope.items, graphs.Parameter)
            and not scope.after
            and self.parameters[scope.items.name][0] == "list"
        ):
            inner = self.parameters[scope.items.name][1]
            if shapes.is_scalar(inner):
                return inner
        return "encoded"

    def step(self, node: graphs.Node) -> tuple[orders.Order, dict[str, Port]]:
        """Return the order of a node and the ports it needs."""
        facts = self.facts[node.function]
        self._check_types(node, facts)
        ports: dict[str, Port] = {}
        order: dict[str, Any] = {"sources": {}, "inputs": {}}
        for name, expression in node.inputs.items():
            self._connect(name, expression, ports, order)
        return step_order(facts, ports, order, self.exports.get(node.id, {})), ports

    def evaluation(self, kind: Any, expression: graphs.Expression, output: str) -> tuple[orders.Order, dict[str, Port]]:
        """Return the order of a small task that evaluates one expression."""
        ports: dict[str, Port] = {}
        order: dict[str, Any] = {"sources": {}, "inputs": {}}
        self._connect("value", expression, ports, order)
        outputs = {"output": orders.Export(kind=output)}
        return orders.Order(kind=kind, ports=_shapes(ports), outputs=outputs, **order), ports

    def _connect(
        self,
        name: str,
        expression: graphs.Expression,
        ports: dict[str, Port],
        order: dict[str, Any],
    ) -> None:
        free = name not in RESERVED
        if isinstance(expression, graphs.Constant):
            shape = _constant_shape(expression.value)
            if free and shape is not None:
                ports[name] = Port(shape, expression.value)
            else:
                order["inputs"][name] = expression
            return
        found = list(orders.leaves(expression))
        if free and len(found) == 1 and found[0] is expression:
            channel, whole = self.channel(found[0])
            if whole:
                ports[name] = Port(channel.shape, channel.value)
                return
        order["inputs"][name] = expression
        for leaf in found:
            self._source(name, leaf, ports, order)

    def _source(self, name: str, leaf: orders.Leaf, ports: dict[str, Port], order: dict[str, Any]) -> None:
        channel, _ = self.channel(leaf)
        key = orders.leaf_key(leaf)
        if key in order["sources"]:
            return
        stem = STATUS if channel.shape == STATUS else f"{name}_in" if name in RESERVED else name
        port, number = stem, 2
        while port in ports:
            port, number = f"{stem}_{number}", number + 1
        ports[port] = Port(channel.shape, channel.value)
        order["sources"][key] = port

    def collected_of(self, scope: str) -> dict[str, graphs.Expression]:
        """Return what is collected of the instances of a loop anywhere in the graph, by the key of its channel."""
        parts: list[graphs.Node | graphs.Scope] = [*self.graph.nodes, *self.graph.scopes]
        roots = [one for part in parts for one in expressions(part)]
        found: dict[str, graphs.Expression] = {}
        for leaf in _collected(roots):
            if leaf.scope == scope:
                found[orders.leaf_key(leaf)] = leaf.value
        return found

    def check(self, what: str, expression: graphs.Expression, given: shapes.Shape, taken: shapes.Shape) -> None:
        """Refuse a result that can never be what is taken: found here, not after hours of work."""
        if not clash(given, taken):
            return
        name = expression.name if isinstance(expression, graphs.Parameter) else getattr(expression, "node", "the item")
        raise UserError(
            f"{what} takes {shown(taken)}, but {str(name).replace('.', ' of ')} is {shown(given)}. "
            "Correct one of the two annotations, or convert the value in a step."
        )

    def _check_types(self, node: graphs.Node, facts: StepFacts) -> None:
        for name, expression in node.inputs.items():
            if isinstance(expression, graphs.Output) and not expression.path:
                what = f"{node.id}({name}=...)"
                self.check(what, expression, self.given(expression.node), facts.shapes.get(name, "text"))

    def given(self, giver: str) -> shapes.Shape:
        """Return the shape of what a node gives, or of an output of a native component."""
        node, _, output = giver.partition(".")
        facts = self.facts[self._functions[node]]
        return facts.returns if facts.native is None else natives.outputs(facts.native)[output]


def step_order(
    facts: StepFacts, ports: Mapping[str, Port], order: Mapping[str, Any], exports: Mapping[str, Any]
) -> orders.Order:
    """Return the order of a step: by digest for the training API, with its spec for a pod that does it itself."""
    assert facts.spec is not None
    outputs = {"output": orders.Export(), **exports}
    if facts.gpu or facts.reports:
        outputs["metrics"] = orders.Export(kind="metrics")
        outputs["report"] = orders.Export(kind="report")
    if facts.gpu:
        outputs["curve"] = orders.Export(kind="curve")
    where: dict[str, Any] = {"function": facts.spec.name, "digest": facts.spec.digest()} if facts.gpu else {}
    if not facts.gpu:
        where = {"spec": facts.spec}
    return orders.Order(ports=_shapes(ports), outputs=outputs, **where, **order)


def _shapes(ports: Mapping[str, Port]) -> dict[str, shapes.Shape]:
    return {name: port.shape for name, port in ports.items()}


def _constant_shape(value: Any) -> shapes.Shape | None:
    """Return the shape under which KFP can show a constant; None for what stays inside the order, exactly as it is."""
    shape = shapes.of_value(value)
    return shape if shapes.is_scalar(shape) and shapes.survives(value) else None


def _exports(graph: graphs.Graph, facts: Mapping[str, StepFacts]) -> dict[str, dict[str, orders.Export]]:
    """Return what each node hands out beside its encoded result: files for the page, parts for native components."""
    found: dict[str, dict[str, orders.Export]] = {}
    for node in graph.nodes:
        returns = facts[node.function].returns
        if facts[node.function].native is None and shapes.is_artifact(returns):
            found[node.id] = {"artifact": orders.Export(kind=f"reference:{returns[1]}")}
    functions = {node.id: node.function for node in graph.nodes}
    for node in graph.nodes:
        native = facts[node.function].native
        if native is None:
            continue
        wanted = natives.inputs(native)
        for name, expression in node.inputs.items():
            if isinstance(expression, graphs.Output) and expression.node in functions and name in wanted:
                kind = natives.export_kind(wanted[name])
                mine = found.setdefault(expression.node, {})
                mine[export_name(kind, expression.path)] = orders.Export(path=expression.path, kind=kind)
    return found


def export_name(kind: str, path: tuple[str | int, ...]) -> str:
    """Name the output that hands a part of a result to native components."""
    stem = "artifact" if ":" in kind else f"value_{kind}"
    return "_".join([stem, *(str(one) for one in path)]).replace("-", "_").lower()


def leaves_of(part: graphs.Node | graphs.Scope | graphs.Group) -> Iterator[orders.Leaf]:
    """Yield what a part itself reads, and what a collected list is made of."""
    if not isinstance(part, graphs.Group):
        for expression in expressions(part):
            yield from deep_leaves(expression)


def deep_leaves(expression: graphs.Expression) -> Iterator[orders.Leaf]:
    """Yield the leaves, and those of what a collected list is made of."""
    for leaf in orders.leaves(expression):
        yield leaf
        if isinstance(leaf, graphs.Collected):
            yield from deep_leaves(leaf.value)


def expressions(part: graphs.Node | graphs.Scope) -> list[graphs.Expression]:
    """Return what a part itself reads."""
    if isinstance(part, graphs.Node):
        return list(part.inputs.values())
    return [one for one in (part.condition, part.items) if one is not None]


def _collected(roots: list[graphs.Expression]) -> Iterator[graphs.Collected]:
    for root in roots:
        for leaf in orders.leaves(root):
            if isinstance(leaf, graphs.Collected):
                yield leaf
                yield from _collected([leaf.value])


def clash(given: shapes.Shape, taken: shapes.Shape) -> bool:
    """Say whether a value of one shape can never be one of the other; what is not known is let through."""
    given, taken = _known(given), _known(taken)
    if given is None or taken is None or given == taken or taken == "artifact:Artifact":
        return False
    return not ({given, taken} <= {"int", "float", "bool"} and taken in ("float", "int") and given != "float")


def _known(shape: shapes.Shape) -> str | None:
    if isinstance(shape, list):
        return (
            _known(shape[1])
            if shape[0] == "optional"
            else f"artifact:{shape[1]}"
            if shape[0] == "artifact"
            else shape[0]
        )
    return shape if shape in shapes.SCALARS else None


def shown(shape: shapes.Shape) -> str:
    """Write a shape as a person wrote the annotation."""
    if isinstance(shape, list):
        if shape[0] == "optional":
            return f"{shown(shape[1])} | None"
        return (
            f"tl.{shape[1]}"
            if shape[0] == "artifact"
            else f"{shape[0]}[{shown(shape[1])}]"
            if shape[1] != "any"
            else shape[0]
        )
    return str(shape)
