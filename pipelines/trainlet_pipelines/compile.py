"""Compile a graph to Kubeflow Pipelines IR, through the kfp SDK and never by hand.

Every node becomes one container component that runs `python -m trainlet_pipelines.dispatch`: a light pod that creates
the task at the training API, streams its logs and waits. Values travel as small JSON strings (big ones are in the
store), so KFP's launcher never copies an artifact into the dispatch pod. Conditions and the items of a loop are
computed by the same image, so that KFP sees only plain comparisons and lists.

This module knows kfp; it must not know how a task is run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet.core.models import Value
from trainlet.core.specs import FunctionSpec

Leaf = graphs.Parameter | graphs.Output | graphs.Item | graphs.Collected
ARGUMENT_BYTES = 128 * 1024  # Linux refuses a longer argv entry (MAX_ARG_STRLEN)


class Target(Value):
    """Where a compiled pipeline runs: the dispatch image, the training API and the Secret that holds its token."""

    image: str = "trainlet/dispatch:latest"
    api: str | None = None
    token_secret: str = "trainlet-token"  # noqa: S105 - the name of a Secret, not its content
    token_key: str = "token"  # noqa: S105


def leaves(expression: graphs.Expression) -> Iterator[Leaf]:
    """Yield what an expression reads from outside: parameters, outputs, items and collected lists."""
    match expression:
        case graphs.Parameter() | graphs.Output() | graphs.Item() | graphs.Collected():
            yield expression
        case graphs.ListOf(items=items):
            for item in items:
                yield from leaves(item)
        case graphs.DictOf(items=mapping):
            for item in mapping.values():
                yield from leaves(item)
        case graphs.Condition(operands=operands):
            for item in operands:
                yield from leaves(item)
        case graphs.Constant() | graphs.RunStatus():
            return


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
            if not isinstance(value, graphs.Output):
                raise UserError(f"The result of tl.each {scope!r} must be what a step returns to compile for KFP.")
            return f"collected:{scope}:{value.node}"


def compile_graph(
    graph: graphs.Graph, specs: Mapping[str, FunctionSpec], path: str | Path, target: Target | None = None
) -> Path:
    """Write the pipeline as KFP v2 IR YAML and return its path.

    `specs` maps function names to what was registered. Raises UserError when kfp is not installed, when a constant is
    not JSON, or when a step's arguments exceed KFP's limits.
    """
    try:
        from kfp import compiler, dsl
    except ImportError as error:
        raise UserError("Compiling for Kubeflow Pipelines needs kfp: pip install 'trainlet[kfp]'.") from error
    builder = _Builder(graph, specs, target or Target(), dsl)
    pipeline = dsl.pipeline(name=graph.name, description=graph.description or None)(builder.pipeline_function())
    out = Path(path)
    compiler.Compiler().compile(pipeline, str(out))
    return out


class _Builder:
    """Walks the scopes of one graph inside a kfp trace."""

    def __init__(self, graph: graphs.Graph, specs: Mapping[str, FunctionSpec], target: Target, dsl: Any) -> None:
        self.graph, self.specs, self.target, self.dsl = graph, specs, target, dsl
        self.channels: dict[str, tuple[Any, type]] = {}
        self.tasks: dict[str, Any] = {}

    def pipeline_function(self) -> Callable[..., None]:
        """Return a function whose signature holds the pipeline's parameters, for `dsl.pipeline`."""
        types = {name: _parameter_type(default) for name, default in self.graph.parameters.items()}
        parameters = [_positional(name, str) for name in self.graph.required]
        parameters += [_positional(name, types[name], default) for name, default in self.graph.parameters.items()]

        def body(*arguments: Any) -> None:
            for parameter, channel in zip(parameters, arguments, strict=True):
                self.channels[f"parameter:{parameter.name}"] = (channel, parameter.annotation)
            exits = [scope for scope in self.graph.scopes if scope.kind == "exit"]
            with ExitStack() as stack:
                for scope in exits:
                    stack.enter_context(self.dsl.ExitHandler(self._exit_task(scope)))
                self._scope("root")

        body.__name__ = self.graph.name.replace("-", "_")
        body.__doc__ = self.graph.description
        _sign(body, parameters)
        return body

    def _scope(self, scope_id: str) -> None:
        pending: list[graphs.Node | graphs.Scope] = [n for n in self.graph.nodes if n.scope == scope_id]
        pending += [s for s in self.graph.scopes if s.parent == scope_id and s.kind != "exit"]
        while pending:
            ready = [part for part in pending if self._ready(part)]
            if not ready:
                raise UserError(f"Pipeline {self.graph.name!r} has a cycle through {', '.join(p.id for p in pending)}.")
            for part in ready:
                pending.remove(part)
                if isinstance(part, graphs.Node):
                    self._node(part)
                elif part.kind == "when":
                    self._when(part)
                else:
                    self._each(part)

    def _ready(self, part: graphs.Node | graphs.Scope) -> bool:
        inner = [part, *self._inside(part.id)] if isinstance(part, graphs.Scope) else [part]
        own = {p.id for p in inner}
        wanted: set[str] = set()
        for one in inner:
            wanted |= {node for node in one.after if node not in own and node not in self.tasks}
            for expression in _expressions(one):
                for leaf in leaves(expression):
                    node = _source(leaf)
                    if node is not None and node not in own and node not in self.tasks:
                        wanted.add(node)
        return not wanted

    def _inside(self, scope_id: str) -> Iterator[graphs.Node | graphs.Scope]:
        yield from (node for node in self.graph.nodes if node.scope == scope_id)
        for scope in self.graph.scopes:
            if scope.parent == scope_id:
                yield scope
                yield from self._inside(scope.id)

    def _node(self, node: graphs.Node) -> Any:
        step = {
            "kind": "step",
            "node": node.id,
            "function": node.function,
            "digest": node.digest,
            "inputs": {name: value.model_dump(mode="json") for name, value in node.inputs.items()},
        }
        task = self._call(node.id, node.inputs.values(), step, str, node.display or node.id)
        for before in node.after:
            task.after(self.tasks[before])
        self.tasks[node.id] = task
        self.channels[f"output:{node.id}"] = (task.outputs["output"], str)
        return task

    def _when(self, scope: graphs.Scope) -> None:
        assert scope.condition is not None
        step = {"kind": "condition", "condition": scope.condition.model_dump(mode="json")}
        decided = self._call(f"{scope.id}-condition", [scope.condition], step, str, f"{scope.id}?")
        with self.dsl.If(decided.outputs["output"] == "true", name=scope.id):
            self._scope(scope.id)

    def _each(self, scope: graphs.Scope) -> None:
        assert scope.items is not None
        step = {"kind": "items", "items": scope.items.model_dump(mode="json")}
        listed = self._call(f"{scope.id}-items", [scope.items], step, list, f"{scope.id} items")
        loop = self.dsl.ParallelFor(listed.outputs["output"], name=scope.id, parallelism=scope.max_parallel)
        with loop as item:
            self.channels[f"item:{scope.id}"] = (item, str)
            self._scope(scope.id)
        for node in self.graph.nodes:
            if node.scope == scope.id:
                collected = self.dsl.Collected(self.tasks[node.id].outputs["output"])
                self.channels[f"collected:{scope.id}:{node.id}"] = (collected, list)

    def _exit_task(self, scope: graphs.Scope) -> Any:
        nodes = [node for node in self.graph.nodes if node.scope == scope.id]
        if len(nodes) != 1:
            raise UserError(f"KFP runs one task at exit; {scope.id!r} holds {len(nodes)}. Call one step there.")
        return self._node(nodes[0])

    def _call(
        self, name: str, expressions: Iterable[graphs.Expression], step: dict[str, Any], output: type, display: str
    ) -> Any:
        bound: dict[str, str] = {}
        arguments: dict[str, Any] = {}
        parameters: list[inspect.Parameter] = []
        for expression in expressions:
            for leaf in leaves(expression):
                key = leaf_key(leaf)
                if key not in bound:
                    bound[key] = f"in_{len(bound)}"
                    channel, kind = self.channels[key]
                    arguments[bound[key]] = channel
                    parameters.append(_positional(bound[key], kind))
        text = json.dumps(step | {"bound": bound}, separators=(",", ":"))
        if len(text.encode()) >= ARGUMENT_BYTES:
            raise UserError(
                f"The constants of {name!r} take {len(text.encode())} bytes; KFP passes at most {ARGUMENT_BYTES}. "
                "Return the value from a step and pass that instead."
            )
        component = self._component(name, parameters, text, output)
        task = component(**arguments)
        task.set_display_name(display)
        self._surroundings(task)
        return task

    def _component(self, name: str, parameters: list[inspect.Parameter], text: str, output: type) -> Any:
        spec = self.dsl.ContainerSpec(
            image=self.target.image,
            command=["python", "-m", "trainlet_pipelines.dispatch"],
            args=["--executor-input", "{{$}}", "--step", text],
        )

        def body(*_placeholders: Any) -> Any:
            return spec

        body.__name__ = name.replace("-", "_").replace(".", "_")
        _sign(body, [*parameters, _positional("output", self.dsl.OutputPath(output))], self.dsl.ContainerSpec)
        return self.dsl.container_component(body)

    def _surroundings(self, task: Any) -> None:
        from kfp import kubernetes

        kubernetes.use_field_path_as_env(task, "KFP_RUN_ID", "metadata.labels['pipeline/runid']")
        if self.target.api is not None:
            task.set_env_variable("TRAINLET_API", self.target.api)
        kubernetes.use_secret_as_env(task, self.target.token_secret, {self.target.token_key: "TRAINLET_TOKEN"})


def _expressions(part: graphs.Node | graphs.Scope) -> list[graphs.Expression]:
    if isinstance(part, graphs.Node):
        return list(part.inputs.values())
    return [one for one in (part.condition, part.items) if one is not None]


def _source(leaf: Leaf) -> str | None:
    if isinstance(leaf, graphs.Output):
        return leaf.node
    if isinstance(leaf, graphs.Collected) and isinstance(leaf.value, graphs.Output):
        return leaf.value.node
    return None


def _parameter_type(default: Any) -> type:
    kind = type(default)
    return kind if kind in (bool, int, float, str, list, dict) else str


def _positional(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)


def _sign(function: Callable[..., Any], parameters: list[inspect.Parameter], returns: Any = None) -> None:
    """Give a function the signature that kfp reads."""
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
