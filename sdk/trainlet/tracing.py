"""The recording of one pipeline call: nodes and scopes in, a `Graph` out.

A trace is open while the pipeline function runs, in the context variable `_active`; step calls, `tl.when` and the like
write into it. It must not know what a step does with its options: it asks a step for its name, its label and (when
`resolve` is on) its digest.

Values that are JSON become constants of the graph. Any other Python value goes into a side table under the parameter
name `$const-N`: it is encoded when the run starts, because that needs a store.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainlet import locations
from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet.futures import Future

if TYPE_CHECKING:
    from trainlet.steps import Step

UNRESOLVED = "0" * 64
"""The digest of a node whose step was not bundled, because it runs in this process."""

_active: ContextVar[Trace | None] = ContextVar("trainlet_trace", default=None)


@dataclass(frozen=True)
class TracedPipeline:
    """A traced pipeline: the graph, the raw values that belong to its parameters, and the steps it calls by name."""

    graph: graphs.Graph
    values: dict[str, Any]
    steps: dict[str, Step[Any, Any]]


def active() -> Trace | None:
    """Return the trace that is open here, or None in plain code and inside a running step."""
    return _active.get()


def required(what: str) -> Trace:
    """Return the open trace; raises UserError when `what` is used outside of a pipeline."""
    trace = _active.get()
    if trace is None:
        raise UserError(f"{locations.caller()}: {what} works inside a @tl.pipeline function only.")
    return trace


class Trace:
    """One recording. `stack` holds the scopes that are open, `prefixes` the nested pipelines that are being inlined."""

    def __init__(self, name: str, resolve: bool) -> None:
        self.name = name
        self.resolve = resolve
        self.closed = False
        self.stack: list[str] = ["root"]
        self.prefixes: list[str] = []
        self.nodes: dict[str, graphs.Node] = {}
        self.scopes: dict[str, graphs.Scope] = {}
        self.values: dict[str, Any] = {}
        self.steps: dict[str, Step[Any, Any]] = {}
        self.pipelines: list[Any] = []
        self.groups: dict[str, graphs.Group] = {}
        self._open_groups: list[str] = []
        self._digests: dict[str, str] = {}
        self._counts: dict[str, int] = {"root": 1}

    @contextlib.contextmanager
    def opened(self) -> Iterator[Trace]:
        """Make this the open trace; afterwards its futures are refused."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)
            self.closed = True

    # -- names ---------------------------------------------------------------------------------------------------

    def unique(self, label: str) -> str:
        """Return `label`, or `label-2` and so on, prefixed by the nested pipelines that are being inlined."""
        base = "-".join([*self.prefixes[-1:], label])[:80]
        while True:
            self._counts[base] = self._counts.get(base, 0) + 1
            candidate = base if self._counts[base] == 1 else f"{base}-{self._counts[base]}"
            if candidate == base or candidate not in self._counts:
                self._counts.setdefault(candidate, 1)
                return candidate

    @contextlib.contextmanager
    def nested(self, pipeline: Any, label: str, description: str = "") -> Iterator[None]:
        """Inline a pipeline: what it records gets its name as a prefix. A pipeline inside itself is an error."""
        if any(one is pipeline for one in self.pipelines):
            raise UserError(f"{locations.caller()}: the pipeline {label!r} calls itself; that never ends.")
        self.pipelines.append(pipeline)
        self.prefixes.append(self.unique(label))
        group, scope = self.prefixes[-1], self.stack[-1]
        self.groups[group] = graphs.Group(
            id=group, pipeline=label, description=description, scope=scope, parent=self._group_of(scope)
        )
        self._open_groups.append(group)
        try:
            yield
        finally:
            self._open_groups.pop()
            self.prefixes.pop()
            self.pipelines.pop()

    def _group_of(self, scope: str) -> str | None:
        """Return the group that gets what is recorded in a scope now: the open one, if it is in that scope itself."""
        group = self._open_groups[-1] if self._open_groups else None
        return group if group is not None and self.groups[group].scope == scope else None

    def _into_group(self, part: str, scope: str) -> None:
        group = self._group_of(scope)
        if group is not None:
            known = self.groups[group]
            self.groups[group] = known.model_copy(update={"parts": (*known.parts, part)})

    # -- recording -----------------------------------------------------------------------------------------------

    def call(self, step: Step[Any, Any], arguments: dict[str, Any]) -> Future[Any]:
        """Record a call of a step with arguments by name; returns the future of its result."""
        known = self.steps.setdefault(step.name, step)
        if not known.same_as(step):
            raise UserError(
                f"{locations.caller()}: two different steps are named {step.name!r} in pipeline {self.name!r}. "
                f'Give one another name: @tl.step(name=...) or .with_options(name="{step.name}-2").'
            )
        if step.name not in self._digests:
            self._digests[step.name] = step.spec().digest() if self.resolve else UNRESOLVED
        inputs = {name: self.expression(value, f"{step.label}({name}=...)") for name, value in arguments.items()}
        node = graphs.Node(
            id=self.unique(step.label),
            function=step.name,
            digest=self._digests[step.name],
            display=step.label,
            scope=self.stack[-1],
            inputs=inputs,
        )
        self.nodes[node.id] = node
        self._into_group(node.id, node.scope)
        return Future(self, graphs.Output(node=node.id), node.id, step.returns, self.stack[-1])

    @contextlib.contextmanager
    def scope(self, scope: graphs.Scope) -> Iterator[str]:
        """Open a scope; what is recorded inside belongs to it."""
        self.scopes[scope.id] = scope
        if scope.kind != "exit":  # it belongs to the whole pipeline
            self._into_group(scope.id, scope.parent)
        self.stack.append(scope.id)
        try:
            yield scope.id
        finally:
            self.stack.pop()

    def expression(self, value: Any, what: str) -> graphs.Expression:
        """Turn an argument into an expression; `what` names the place in messages."""
        if self.closed:
            raise UserError(f"{locations.caller()}: {what} uses a future after its pipeline {self.name!r} was traced.")
        if isinstance(value, Future):
            self._check(value, what)
            return value._expression
        if not _holds_future(value):
            if is_plain_json(value):
                return graphs.Constant(value=copy.deepcopy(value))
            name = f"$const-{len(self.values) + 1}"
            self.values[name] = value
            return graphs.Parameter(name=name)
        if type(value) in (list, tuple):
            return graphs.ListOf(items=tuple(self.expression(one, what) for one in value))
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return graphs.DictOf(items={key: self.expression(one, what) for key, one in value.items()})
        raise UserError(
            f"{locations.caller()}: {what} holds a future inside a {type(value).__name__}. "
            "Futures travel in lists and in dictionaries with text keys; build anything else inside a step."
        )

    def _check(self, future: Future[Any], what: str) -> None:
        if future._trace is not self:
            raise UserError(
                f"{locations.caller()}: {what} uses {future._label}, which belongs to another pipeline or an earlier "
                "trace. Pass values between pipelines as parameters."
            )
        self._check_visible(future._scope, self.stack, future._label, what)
        if self._inside_exit() and isinstance(future._expression, (graphs.Output, graphs.Collected)):
            exit_scope = next(one for one in self.stack if one in self.scopes and self.scopes[one].kind == "exit")
            if exit_scope not in self.chain(future._scope):
                raise UserError(
                    f"{locations.caller()}: {what} uses {future._label} inside tl.on_exit, which also runs when that "
                    "step failed. Use tl.run_status(), parameters and constants there."
                )

    def _check_visible(self, scope: str, chain: list[str], label: str, what: str) -> None:
        if scope in chain:
            return
        kind = self.scopes[scope].kind
        fix = {
            "each": "Return it from the body: tl.each(...) gives the list of all results.",
            "when": "It may never run: use it inside the same `with tl.when(...)` block.",
            "exit": "It runs at the end: use it inside the same `with tl.on_exit()` block.",
        }[kind]
        raise UserError(f"{locations.caller()}: {what} uses {label} outside of the tl.{kind} it belongs to. {fix}")

    def _inside_exit(self) -> bool:
        return any(one in self.scopes and self.scopes[one].kind == "exit" for one in self.stack)

    def chain(self, scope: str) -> list[str]:
        """Return the scope and those around it, `root` last."""
        found = [scope]
        while found[-1] != "root":
            found.append(self.scopes[found[-1]].parent)
        return found

    def inner_scope(self, one: str, other: str) -> str:
        """Return the inner one of two scopes of which one encloses the other."""
        return one if len(self.chain(one)) >= len(self.chain(other)) else other

    # -- order ---------------------------------------------------------------------------------------------------

    def order(self, future: Future[Any], others: Iterable[Any]) -> None:
        """Make the step behind `future` wait for the steps behind `others`; a cycle is a UserError."""
        if self.closed:
            raise UserError(f"{locations.caller()}: {future._label}.after() comes after the pipeline was traced.")
        target = future._expression
        if isinstance(target, graphs.Output) and not target.path:
            target_id, chain = target.node, self.chain(self.nodes[target.node].scope)
        elif isinstance(target, graphs.Collected):
            target_id, chain = target.scope, self.chain(self.scopes[target.scope].parent)
        else:
            raise UserError(
                f"{locations.caller()}: {future._label} is not the result of a step call, so it cannot wait. "
                "Write step(...).after(other)."
            )
        before: list[str] = []
        for other in others:
            if not isinstance(other, Future):
                raise UserError(
                    f"{locations.caller()}: .after({other!r}) needs the result of a step call, "
                    f"not a {type(other).__name__}."
                )
            if other._trace is not self:
                raise UserError(f"{locations.caller()}: .after() got {other._label} of another pipeline.")
            self._check_visible(other._scope, chain, other._label, f"{future._label}.after(...)")
            found = sorted(self.sources(other._expression))
            if not found:
                at = locations.caller()
                raise UserError(f"{at}: .after({other._label}): there is no step behind it to wait for.")
            before += found
        self._check_cycle(target_id, before)
        if target_id in self.nodes:
            node = self.nodes[target_id]
            self.nodes[target_id] = node.model_copy(update={"after": _merged(node.after, before)})
        else:
            scope = self.scopes[target_id]
            self.scopes[target_id] = scope.model_copy(update={"after": _merged(scope.after, before)})

    def sources(self, expression: graphs.Expression) -> set[str]:
        """Return the nodes that an expression waits for."""
        match expression:
            case graphs.Output(node=node):
                return {node}
            case graphs.Collected(scope=scope, value=value):
                inner = {node.id for node in self.nodes.values() if scope in self.chain(node.scope)}
                return inner | self.sources(value)
            case graphs.Condition(operands=parts) | graphs.ListOf(items=parts):
                return set().union(*(self.sources(part) for part in parts))
            case graphs.DictOf(items=named):
                return set().union(*(self.sources(part) for part in named.values()))
            case _:
                return set()

    def _waits_for(self, node: graphs.Node) -> set[str]:
        found = set(node.after).union(*(self.sources(one) for one in node.inputs.values()))
        for scope_id in self.chain(node.scope)[:-1]:
            scope = self.scopes[scope_id]
            found |= set(scope.after)
            for one in (scope.condition, scope.items):
                if one is not None:
                    found |= self.sources(one)
        return found

    def _check_cycle(self, target: str, before: list[str]) -> None:
        own = {target} if target in self.nodes else set()
        if target in self.scopes:
            own = {node.id for node in self.nodes.values() if target in self.chain(node.scope)}
        seen: set[str] = set()
        pending = list(before)
        while pending:
            current = pending.pop()
            if current in own:
                raise UserError(
                    f"{locations.caller()}: .after() makes a cycle: {target!r} would wait for "
                    f"{', '.join(sorted(set(before)))}, which already waits for it. Remove one of the two."
                )
            if current not in seen:
                seen.add(current)
                pending += self._waits_for(self.nodes[current])


def is_plain_json(value: Any) -> bool:
    """Say whether a value is JSON as it is: exact types, finite floats, text keys, no key that the codec reserves."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(is_plain_json(one) for one in value)
    if kind is dict:
        return "$trainlet" not in value and all(type(k) is str and is_plain_json(v) for k, v in value.items())
    return False


def _holds_future(value: Any) -> bool:
    if isinstance(value, Future):
        return True
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_holds_future(one) for one in value)
    if isinstance(value, dict):
        return any(_holds_future(one) for one in value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_holds_future(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return False


def _merged(old: tuple[str, ...], new: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*old, *new]))
