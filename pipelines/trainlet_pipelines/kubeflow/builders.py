"""Walks the scopes of one graph inside of kfp's trace: nodes become tasks, scopes become kfp's groups.

`tl.when` is `dsl.If` (with a `dsl.Else` for a block of the opposite condition beside it), `tl.each` is
`dsl.ParallelFor` with `dsl.Collected`, `tl.on_exit` is `dsl.ExitHandler`. What KFP cannot compare, loop over or
collect as it is, a small task evaluates first.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow import comparisons, components, natives, wiring
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.pods import orders, shapes

Part = graphs.Node | graphs.Scope


class Builder:
    """One compilation. `parameters` are the shapes of the pipeline's own."""

    def __init__(
        self,
        graph: graphs.Graph,
        facts: Mapping[str, StepFacts],
        parameters: Mapping[str, shapes.Shape],
        workshop: components.Workshop,
    ) -> None:
        self.graph = graph = natives.rewritten(graph, facts)
        self.facts, self.parameters, self.workshop = facts, parameters, workshop
        self.dsl = workshop.dsl
        self.wiring = wiring.Wiring(graph, facts)
        self.tasks: dict[str, Any] = {}
        self._nodes = {node.id: node for node in graph.nodes}

    def pipeline_function(self) -> Callable[..., None]:
        """Return a function whose signature holds the pipeline's parameters, for `dsl.pipeline`."""
        parameters = [self._parameter(name) for name in (*self.graph.required, *self.graph.parameters)]

        def body(*channels: Any) -> None:
            for name, channel in zip((one.name for one in parameters), channels, strict=True):
                self.wiring.add(f"parameter:{name}", channel, self.parameters[name])
            with ExitStack() as stack:
                for scope in self.graph.scopes:
                    if scope.kind == "exit":
                        stack.enter_context(self.dsl.ExitHandler(self._exit_task(scope), name=scope.id))
                self._parts("root")

        body.__name__ = components.identifier(self.graph.name)
        body.__doc__ = self.graph.description
        components.sign(body, parameters)
        return body

    def _parameter(self, name: str) -> inspect.Parameter:
        shape = self.parameters[name]
        default = self.graph.parameters.get(name, inspect.Parameter.empty)
        kind = components.kfp_type(shape)
        if default is None and not (isinstance(shape, list) and shape[0] == "optional"):
            default = "null"
        elif default is not inspect.Parameter.empty and default is not None and shape == "text":
            default = shapes.to_text(default, f"The default of {name}")
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

    # -- order

    def _parts(self, scope_id: str) -> None:
        pending: list[Part] = [node for node in self.graph.nodes if node.scope == scope_id]
        pending += [one for one in self.graph.scopes if one.parent == scope_id and one.kind != "exit"]
        while pending:
            ready = next((part for part in pending if self._ready(part)), None)
            if ready is None:
                names = ", ".join(part.id for part in pending)
                raise UserError(f"Pipeline {self.graph.name!r} has a cycle through {names}.")
            pending.remove(ready)
            if isinstance(ready, graphs.Node):
                self._node(ready)
            elif ready.kind == "when":
                opposite = self._opposite(ready, pending)
                if opposite is not None:
                    pending.remove(opposite)
                self._when(ready, opposite)
            else:
                self._each(ready)

    def _ready(self, part: Part) -> bool:
        inner = [part, *self._inside(part.id)] if isinstance(part, graphs.Scope) else [part]
        own = {one.id for one in inner}
        wanted = {node for one in inner for node in one.after}
        wanted |= {
            leaf.node.partition(".")[0]
            for one in inner
            for expression in wiring.expressions(one)
            for leaf in _deep_leaves(expression)
            if isinstance(leaf, graphs.Output)
        }
        return all(one in own or one in self.tasks for one in wanted)

    def _inside(self, scope_id: str) -> Iterator[Part]:
        yield from (node for node in self.graph.nodes if node.scope == scope_id)
        for scope in self.graph.scopes:
            if scope.parent == scope_id:
                yield scope
                yield from self._inside(scope.id)

    # -- nodes

    def _node(self, node: graphs.Node) -> Any:
        facts = self.facts[node.function]
        if facts.native is not None:
            task = natives.call(self, node, facts)
        else:
            order, ports = self.wiring.step(node)
            task = self.workshop.task(node.id, order, ports, facts, node.id)
        for before in node.after:
            task.after(self.tasks[before])
        self.tasks[node.id] = task
        self.wiring.add_task(node, task)
        return task

    def evaluate(self, name: str, kind: Any, expression: graphs.Expression, output: str, after: tuple[str, ...]) -> Any:
        """Add a small task that evaluates an expression, and return its output's channel."""
        order, ports = self.wiring.evaluation(kind, expression, output)
        task = self.workshop.task(name, order, ports, None, name)
        for before in after:
            task.after(self.tasks[before])
        return task.outputs["output"]

    def _exit_task(self, scope: graphs.Scope) -> Any:
        nodes = [node for node in self.graph.nodes if node.scope == scope.id]
        inner = [one for one in self.graph.scopes if one.parent == scope.id]
        if len(nodes) != 1 or inner:
            names = ", ".join([*(node.id for node in nodes), *(one.id for one in inner)]) or "nothing"
            raise UserError(
                f"KFP runs one task at exit; tl.on_exit holds {names}. Call one step there, with all of it."
            )
        return self._node(nodes[0])

    # -- scopes

    def _when(self, scope: graphs.Scope, opposite: graphs.Scope | None) -> None:
        assert scope.condition is not None
        condition = None if scope.after else comparisons.native(scope.condition, self.wiring)
        if condition is None:
            decided = self.evaluate(f"{scope.id}-decides", "condition", scope.condition, "encoded", scope.after)
            condition = decided == "true"
        with self.dsl.If(condition, name=scope.id):
            self._parts(scope.id)
        if opposite is not None:
            with self.dsl.Else(name=opposite.id):
                self._parts(opposite.id)

    def _opposite(self, scope: graphs.Scope, pending: list[Part]) -> graphs.Scope | None:
        """Return the block beside this one that runs exactly when this one does not."""
        if scope.after or scope.condition is None:
            return None
        negated = graphs.Condition(operator="not", operands=(scope.condition,))
        for part in pending:
            if isinstance(part, graphs.Scope) and part.condition == negated and not part.after and self._ready(part):
                return part
        return None

    def _each(self, scope: graphs.Scope) -> None:
        assert scope.items is not None
        items, shape = self._items(scope)
        with self.dsl.ParallelFor(items, name=scope.id, parallelism=scope.max_parallel) as item:
            self.wiring.add(f"item:{scope.id}", item, shape)
            self._parts(scope.id)
            inside = self.wiring.collected_of(scope.id)
            values = {
                key: self._collectable(scope, value, number) for number, (key, value) in enumerate(inside.items())
            }
        for key, channel in values.items():
            self.wiring.add(key, self.dsl.Collected(channel), ["list", "encoded"])

    def _items(self, scope: graphs.Scope) -> tuple[Any, shapes.Shape]:
        assert scope.items is not None
        match scope.items:
            case graphs.Constant(value=list(values)):
                return [json.dumps(value) for value in values], "encoded"
            case graphs.Parameter(name=name) if not scope.after and self.parameters[name][0] == "list":
                inner = self.parameters[name][1]
                if shapes.is_scalar(inner):
                    return self.wiring.channels[f"parameter:{name}"].value, inner
        return self.evaluate(f"{scope.id}-items", "items", scope.items, "list", scope.after), "encoded"

    def _collectable(self, scope: graphs.Scope, value: graphs.Expression, number: int) -> Any:
        """Return the channel that holds, inside the loop, what one instance contributes to the list of all."""
        if isinstance(value, graphs.Output) and not value.path:
            node = self._nodes.get(value.node)
            if node is not None and node.scope == scope.id:
                return self.wiring.channels[f"output:{value.node}"].value
        name = f"{scope.id}-result" if number == 0 else f"{scope.id}-result-{number + 1}"
        return self.evaluate(name, "value", value, "encoded", ())


def _deep_leaves(expression: graphs.Expression) -> Iterator[orders.Leaf]:
    """Yield the leaves, and those of what a collected list is made of."""
    for leaf in orders.leaves(expression):
        yield leaf
        if isinstance(leaf, graphs.Collected):
            yield from _deep_leaves(leaf.value)
