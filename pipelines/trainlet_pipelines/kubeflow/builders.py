"""Walks the scopes of one graph inside of kfp's trace: nodes become tasks, scopes become kfp's groups.

`tl.when` is `dsl.If` (with a `dsl.Else` for a block of the opposite condition beside it), `tl.each` is
`dsl.ParallelFor` with `dsl.Collected`, `tl.on_exit` is `dsl.ExitHandler`. What KFP cannot compare, loop over or
collect as it is, a small task evaluates first.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.kubeflow import boxes, comparisons, components, natives, wiring
from trainlet_pipelines.kubeflow.facts import StepFacts
from trainlet_pipelines.kubeflow.layouts import Layout, Part, after
from trainlet_pipelines.pods import shapes


class Builder:
    """One compilation. `parameters` are the shapes of the pipeline's own."""

    def __init__(
        self,
        graph: graphs.Graph,
        facts: Mapping[str, StepFacts],
        parameters: Mapping[str, shapes.Shape],
        workshop: components.Workshop,
    ) -> None:
        graph = natives.rewritten(graph, facts)
        self.facts, self.parameters, self.workshop = facts, parameters, workshop
        self._begin(graph, Layout(graph), {})

    def _begin(self, graph: graphs.Graph, layout: Layout, made: dict[str, boxes.Box]) -> None:
        self.graph, self.layout, self._boxes = graph, layout, made
        self.dsl = self.workshop.dsl
        self.wiring = wiring.Wiring(graph, self.facts, self.parameters)
        self.tasks: dict[str, Any] = {}
        self._nodes = {node.id: node for node in graph.nodes}

    def _inner(self) -> Builder:
        """Return a builder for a box of the same graph: it has its own channels and tasks."""
        one = object.__new__(Builder)
        one.facts, one.parameters, one.workshop = self.facts, self.parameters, self.workshop
        one._begin(self.graph, self.layout, self._boxes)
        return one

    def pipeline_function(self) -> Callable[..., None]:
        """Return a function whose signature holds the pipeline's parameters, for `dsl.pipeline`."""
        exits = [scope for scope in self.graph.scopes if scope.kind == "exit"]
        for group in [*self.layout.innermost(), *(self._exit_group(one) for one in exits if not self._alone(one))]:
            self._boxes[group.id] = self._box(group)
        parameters = [self._parameter(name) for name in (*self.graph.required, *self.graph.parameters)]

        def body(*channels: Any) -> None:
            for name, channel in zip((one.name for one in parameters), channels, strict=True):
                self.wiring.add(f"parameter:{name}", channel, self.parameters[name])
            with ExitStack() as stack:
                for scope in exits:
                    stack.enter_context(self.dsl.ExitHandler(self._exit_task(scope), name=scope.id))
                self.lay("root")

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

    def lay(self, scope: str, box: str | None = None) -> None:
        """Make the tasks of a scope, or of a box in it, in their order."""
        pending = self.layout.members(scope, box)
        here = {one.id for part in pending for one in (part, *self.layout.inside(part))}
        while pending:
            ready = next(part for part in pending if not (self.layout.wanted(part) & here) - set(self.tasks))
            pending.remove(ready)
            if isinstance(ready, graphs.Node):
                self._node(ready)
            elif isinstance(ready, graphs.Group):
                self._group(ready)
            elif ready.kind == "when":
                opposite = self._opposite(ready, pending)
                if opposite is not None:
                    pending.remove(opposite)
                self._when(ready, opposite)
            else:
                self._each(ready)

    # -- boxes

    def _box(self, group: graphs.Group) -> boxes.Box:
        """Make the pipeline of a group, with what it reads from outside and what is read of it there."""
        inside = [one for one in self.layout.inside(group) if not isinstance(one, graphs.Group)]
        own = {one.id for one in inside}
        reads = {key: read for one in inside for key, read in self.wiring.reads(one) if not _made_in(key, read, own)}
        gives: dict[str, wiring.Read] = {}
        everything: list[graphs.Node | graphs.Scope] = [*self.graph.nodes, *self.graph.scopes]
        for one in everything:
            if one.id not in own:
                found = self.wiring.reads(one)
                gives.update({key: read for key, read in found if _made_in(key, read, self._visible(group))})
        return boxes.make(self._inner(), group, reads, gives)

    def _visible(self, group: graphs.Group) -> set[str]:
        """Return the parts of a group whose results can be read outside of it: those in no scope of its own."""
        parts = [one for one in self.layout.inside(group) if not isinstance(one, graphs.Group)]
        return {one.id for one in parts if (one.scope if isinstance(one, graphs.Node) else one.parent) == group.scope}

    def _group(self, group: graphs.Group) -> Any:
        task = boxes.call(self, group, self._boxes[group.id])
        inside = list(self.layout.inside(group))
        for before in {one for part in (group, *inside) for one in after(part)} & set(self.tasks):
            task.after(self.tasks[before])
        self.tasks.update({one.id: task for one in inside if isinstance(one, graphs.Node)})
        return task

    def _alone(self, scope: graphs.Scope) -> bool:
        """Say whether a block at the end is one step, which KFP can run as it is."""
        parts = self.layout.members(scope.id)
        if not parts:
            raise UserError(f"Pipeline {self.graph.name!r}: tl.on_exit holds nothing. Call a step there, or remove it.")
        return len(parts) == 1 and isinstance(parts[0], graphs.Node)

    def _exit_group(self, scope: graphs.Scope) -> graphs.Group:
        return graphs.Group(id=scope.id, pipeline=scope.id, description="Runs at the end.", scope=scope.id)

    # -- nodes

    def _node(self, node: graphs.Node) -> Any:
        facts = self.facts[node.function]
        if facts.native is not None:
            task = natives.call(self, node, facts)
        else:
            order, ports = self.wiring.step(node)
            task = self.workshop.task(node.id, order, ports, facts, node.id)
        self._order(task, node.after)
        self.tasks[node.id] = task
        self.wiring.add_task(node, task)
        return task

    def evaluate(
        self, name: str, kind: Any, expression: graphs.Expression, output: str, before: tuple[str, ...]
    ) -> Any:
        """Add a small task that evaluates an expression, and return its output's channel."""
        order, ports = self.wiring.evaluation(kind, expression, output)
        task = self.workshop.task(name, order, ports, None, name)
        self._order(task, before)
        return task.outputs["output"]

    def _order(self, task: Any, before: tuple[str, ...]) -> None:
        """Let a task wait for others; those outside of a box are waited for by the box."""
        for one in before:
            if one in self.tasks:
                task.after(self.tasks[one])

    def _exit_task(self, scope: graphs.Scope) -> Any:
        if self._alone(scope):
            (node,) = self.layout.members(scope.id)
            assert isinstance(node, graphs.Node)
            return self._node(node)
        return self._group(self._exit_group(scope))

    # -- scopes

    def _when(self, scope: graphs.Scope, opposite: graphs.Scope | None) -> None:
        assert scope.condition is not None
        condition = None if scope.after else comparisons.native(scope.condition, self.wiring)
        if condition is None:
            decided = self.evaluate(f"{scope.id}-decides", "condition", scope.condition, "encoded", scope.after)
            condition = decided == "true"
        with self.dsl.If(condition, name=scope.id):
            self.lay(scope.id)
        if opposite is not None:
            with self.dsl.Else(name=opposite.id):
                self.lay(opposite.id)

    def _opposite(self, scope: graphs.Scope, pending: list[Part]) -> graphs.Scope | None:
        """Return the block beside this one that runs exactly when this one does not."""
        if scope.after or scope.condition is None:
            return None
        negated = graphs.Condition(operator="not", operands=(scope.condition,))
        for part in pending:
            if isinstance(part, graphs.Scope) and part.condition == negated and not part.after:
                here = {one.id for other in (*pending, scope) for one in (other, *self.layout.inside(other))}
                if not (self.layout.wanted(part) & here) - set(self.tasks):
                    return part
        return None

    def _each(self, scope: graphs.Scope) -> None:
        assert scope.items is not None
        items, shape = self._items(scope)
        with self.dsl.ParallelFor(items, name=scope.id, parallelism=scope.max_parallel) as item:
            self.wiring.add(f"item:{scope.id}", item, shape)
            self.lay(scope.id)
            inside = self.wiring.collected_of(scope.id)
            values = {
                key: self._collectable(scope, value, number) for number, (key, value) in enumerate(inside.items())
            }
        for key, channel in values.items():
            self.wiring.add(key, self.dsl.Collected(channel), ["list", "encoded"])

    def _items(self, scope: graphs.Scope) -> tuple[Any, shapes.Shape]:
        assert scope.items is not None
        shape = self.wiring.item_shape(scope)
        match scope.items:
            case graphs.Constant(value=list(values)):
                return [json.dumps(value) for value in values], shape
            case graphs.Parameter(name=name) if shape != "encoded":
                return self.wiring.channels[f"parameter:{name}"].value, shape
        return self.evaluate(f"{scope.id}-items", "items", scope.items, "list", scope.after), shape

    def _collectable(self, scope: graphs.Scope, value: graphs.Expression, number: int) -> Any:
        """Return the channel that holds, inside the loop, what one instance contributes to the list of all."""
        if isinstance(value, graphs.Output) and not value.path:
            node = self._nodes.get(value.node)
            if node is not None and node.scope == scope.id:
                return self.wiring.channels[f"output:{value.node}"].value
        name = f"{scope.id}-result" if number == 0 else f"{scope.id}-result-{number + 1}"
        return self.evaluate(name, "value", value, "encoded", ())


def _made_in(key: str, read: wiring.Read, parts: set[str]) -> bool:
    """Say whether a channel comes from one of these parts."""
    match read:
        case graphs.Output(node=giver):
            return giver.partition(".")[0] in parts
        case graphs.Collected(scope=scope) | graphs.Item(scope=scope):
            return scope in parts
        case str():
            return key.split(":")[1] in parts
        case _:
            return False
