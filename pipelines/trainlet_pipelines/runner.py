"""The local graph runner: walks a graph, starts what is ready, and knows how the whole ended.

One thread walks; executors run tasks elsewhere and report back through a queue. A scope becomes a frame when it is
entered: one for a `when` that holds, one per item of an `each`. A task that fails does not stop its neighbours; what
depends on it is not started, exit scopes run in any case.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from trainlet.core import graphs
from trainlet.core.errors import StepFailed, TrainletError, UserError
from trainlet_pipelines.values import Space, compare

State = Literal["succeeded", "failed", "canceled", "skipped", "blocked"]
Verdict = State | Literal["go"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task or a whole scope ended. `error` is the exception itself where there is one."""

    state: State
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One task to run: a node, and the positions of the items it is inside of."""

    node: graphs.Node
    index: tuple[int, ...]
    inputs: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the task's name inside its run: `train`, or `score.3` inside an each."""
        return ".".join([self.node.id, *map(str, self.index)])


class Executor(Protocol):
    """Runs calls somewhere and tells when they ended; `done` may be called from any thread, once per call."""

    def start(self, call: Call, done: Callable[[Outcome], None]) -> None:
        """Begin a call."""
        ...

    def settle(self) -> None:
        """Called by the walking thread before it waits; an executor may run a call right here."""
        ...

    def cancel(self, reason: str) -> None:
        """Stop what runs; calls end as canceled."""
        ...


@dataclass(slots=True)
class _Frame:
    """A scope that was entered."""

    scope: str
    index: tuple[int, ...]
    parent: _Frame | None
    item: Any = None
    parts: dict[str, Outcome] = field(default_factory=dict)
    waiting: dict[str, graphs.Node | graphs.Scope] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    children: dict[str, list[_Frame]] = field(default_factory=dict)
    queued: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    status: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a graph ended: its outputs, or the first error with the task it came from."""

    state: Literal["succeeded", "failed", "canceled"]
    outputs: dict[str, Any]
    error: BaseException | None = None
    failed: tuple[str, ...] = ()


class Runner:
    """Runs one graph once. `run` blocks; `cancel` may come from another thread."""

    def __init__(self, graph: graphs.Graph, params: Mapping[str, Any], space: Space, executor: Executor) -> None:
        self._graph = graph
        self._params = params
        self._space = space
        self._executor = executor
        self._scopes = {scope.id: scope for scope in graph.scopes}
        self._nodes = {node.id: node for node in graph.nodes}
        self._events: queue.SimpleQueue[tuple[_Frame, str, Outcome]] = queue.SimpleQueue()
        self._errors: list[tuple[str, BaseException | None]] = []
        self._stopped: list[BaseException] = []
        self._canceled = threading.Event()
        self._cancel_reason = ""
        self._check()

    def run(self) -> Result:
        """Run to the end and say how it went; only an interrupt of this thread is raised."""
        root = self._frame("root", (), None)
        self._walk(root)
        status = self._status(root)
        for scope in self._graph.scopes:
            if scope.kind == "exit":
                frame = self._frame(scope.id, (), root)
                frame.status = status
                self._walk(frame)
        failed = tuple(name for name, _ in self._errors)
        if self._errors and not self._canceled.is_set():
            return Result("failed", {}, self._errors[0][1], failed)
        if self._canceled.is_set() or self._stopped:
            return Result("canceled", {}, self._stopped[0] if self._stopped else None, failed)
        try:
            outputs = {name: self._evaluate(value, root) for name, value in self._graph.outputs.items()}
        except TrainletError as error:
            return Result("failed", {}, error)
        return Result("succeeded", outputs)

    def cancel(self, reason: str) -> None:
        """Stop: nothing new is started, what runs is asked to stop."""
        self._cancel_reason = reason
        self._canceled.set()
        self._executor.cancel(reason)

    # -- walking

    def _walk(self, frame: _Frame) -> None:
        self._advance(frame)
        while frame.waiting or frame.running:
            self._executor.settle()
            owner, part, outcome = self._events.get()
            self._finished(owner, part, outcome)

    def _frame(self, scope: str, index: tuple[int, ...], parent: _Frame | None, item: Any = None) -> _Frame:
        frame = _Frame(scope, index, parent, item)
        for node in self._graph.nodes:
            if node.scope == scope:
                frame.waiting[node.id] = node
        for inner in self._graph.scopes:
            if inner.parent == scope and inner.kind != "exit":
                frame.waiting[inner.id] = inner
        return frame

    def _advance(self, frame: _Frame) -> None:
        """Start every part whose dependencies are settled."""
        progress = True
        while progress:
            progress = False
            for part_id, part in list(frame.waiting.items()):
                verdict: Verdict | None = "canceled" if self._canceled.is_set() else self._verdict(part, frame)
                if verdict is None:
                    continue
                del frame.waiting[part_id]
                progress = True
                if verdict != "go":
                    frame.parts[part_id] = Outcome(verdict)
                elif isinstance(part, graphs.Node):
                    self._start_node(part, frame)
                else:
                    self._enter(part, frame)

    def _verdict(self, part: graphs.Node | graphs.Scope, frame: _Frame) -> Verdict | None:
        """Return `go`, a state that the part gets without running, or None while it has to wait."""
        verdict: Verdict = "go"
        for needed, is_data in self._dependencies(part):
            outcome = self._outcome_of(needed, frame)
            if outcome is None:
                return None
            if outcome.state in ("failed", "blocked", "canceled"):
                verdict = "blocked"
            elif outcome.state == "skipped" and is_data and verdict == "go":
                verdict = "skipped"
        return verdict

    def _start_node(self, node: graphs.Node, frame: _Frame) -> None:
        try:
            inputs = {name: self._evaluate(value, frame) for name, value in node.inputs.items()}
        except TrainletError as error:
            self._note(frame, node.id, Outcome("failed", error=error))
            return
        frame.running.add(node.id)
        call = Call(node, frame.index, inputs)
        self._executor.start(call, lambda outcome: self._events.put((frame, node.id, outcome)))

    def _enter(self, scope: graphs.Scope, frame: _Frame) -> None:
        try:
            if scope.kind == "when":
                assert scope.condition is not None
                holds = bool(self._space.plain(self._evaluate(scope.condition, frame)))
                entries: list[tuple[int, Any]] = [(0, None)] if holds else []
                if not holds:
                    frame.parts[scope.id] = Outcome("skipped")
                    return
            else:
                assert scope.items is not None
                entries = list(enumerate(self._space.items(self._evaluate(scope.items, frame))))
        except TrainletError as error:
            self._note(frame, scope.id, Outcome("failed", error=error))
            return
        frame.children[scope.id] = []
        frame.running.add(scope.id)
        at_once = scope.max_parallel or len(entries)
        frame.queued[scope.id] = entries[at_once:]
        for number, item in entries[:at_once]:
            self._enter_one(scope, frame, number, item)
        self._settle_scope(scope, frame)

    def _enter_one(self, scope: graphs.Scope, frame: _Frame, number: int, item: Any) -> None:
        index = (*frame.index, number) if scope.kind == "each" else frame.index
        child = self._frame(scope.id, index, frame, item)
        frame.children[scope.id].append(child)
        self._advance(child)

    def _finished(self, frame: _Frame, part: str, outcome: Outcome) -> None:
        frame.running.discard(part)
        self._note(frame, part, outcome)
        self._advance(frame)
        while not frame.waiting and not frame.running and frame.parent is not None:
            parent, scope = frame.parent, self._scopes[frame.scope]
            if scope.kind == "exit":
                return
            self._settle_scope(scope, parent)
            self._advance(parent)
            frame = parent

    def _settle_scope(self, scope: graphs.Scope, frame: _Frame) -> None:
        """Enter queued items as others end, and settle the scope when its last child has."""
        while True:
            children = frame.children[scope.id]
            live = sum(bool(child.waiting or child.running) for child in children)
            waiting = frame.queued[scope.id]
            if waiting and not self._canceled.is_set() and live < (scope.max_parallel or len(children) + 1):
                number, item = waiting.pop(0)
                self._enter_one(scope, frame, number, item)
                continue
            break
        if live or (waiting and not self._canceled.is_set()) or scope.id not in frame.running:
            return
        frame.running.discard(scope.id)
        states = {outcome.state for child in frame.children[scope.id] for outcome in child.parts.values()}
        bad: State | None = next((state for state in ("failed", "blocked", "canceled") if state in states), None)
        frame.parts[scope.id] = Outcome(bad or "succeeded")

    def _note(self, frame: _Frame, part: str, outcome: Outcome) -> None:
        frame.parts[part] = outcome
        if outcome.state == "failed":
            name = ".".join([part, *map(str, frame.index)])
            self._errors.append((name, outcome.error))
        elif outcome.state == "canceled":
            self._stopped.append(outcome.error or StepFailed(f"{part} was cancelled.", kind="canceled"))

    # -- looking up

    def _dependencies(self, part: graphs.Node | graphs.Scope) -> list[tuple[str, bool]]:
        """Return the nodes outside of a part that it needs: (node id, whether it needs its value)."""
        inside = {part.id, *(one.id for one in self._inside(part.id))}
        found: dict[str, bool] = {}
        for one in [part, *self._inside(part.id)]:
            for node in one.after:
                if node not in inside:
                    found.setdefault(node, False)
            for expression in _expressions(one):
                for node in _sources(expression):
                    if node not in inside:
                        found[node] = True
        return list(found.items())

    def _inside(self, scope: str) -> Iterator[graphs.Node | graphs.Scope]:
        yield from (node for node in self._graph.nodes if node.scope == scope)
        for inner in self._graph.scopes:
            if inner.parent == scope:
                yield inner
                yield from self._inside(inner.id)

    def _chain(self, part: str) -> list[str]:
        """Return the scopes around a part, the outermost (root) first."""
        scope = self._nodes[part].scope if part in self._nodes else self._scopes[part].parent
        chain = [scope]
        while scope != "root":
            scope = self._scopes[scope].parent
            chain.insert(0, scope)
        return chain

    def _outcome_of(self, needed: str, frame: _Frame) -> Outcome | None:
        """Return the outcome of a node seen from a frame; for one inside another scope, that scope's."""
        chain = [*self._chain(needed), needed]
        here: _Frame | None = frame
        while here is not None:
            if here.scope in chain:
                return here.parts.get(chain[chain.index(here.scope) + 1])
            here = here.parent
        return None

    def _evaluate(self, expression: graphs.Expression, frame: _Frame) -> Any:
        match expression:
            case graphs.Constant(value=value):
                return self._space.constant(value)
            case graphs.Parameter(name=name):
                return self._params[name]
            case graphs.Output(node=node, path=path):
                outcome = self._outcome_of(node, frame)
                return self._space.select(outcome.value if outcome else None, path)
            case graphs.Item(scope=scope, path=path):
                here: _Frame | None = frame
                while here is not None and here.scope != scope:
                    here = here.parent
                assert here is not None
                return self._space.select(here.item, path)
            case graphs.Collected(scope=scope, value=value):
                owner = self._owner_of(scope, frame)
                children = sorted(owner.children.get(scope, []), key=lambda child: child.index)
                return [self._evaluate(value, child) for child in children]
            case graphs.ListOf(items=items):
                return [self._evaluate(item, frame) for item in items]
            case graphs.DictOf(items=mapping):
                return {name: self._evaluate(item, frame) for name, item in mapping.items()}
            case graphs.RunStatus(path=path):
                at: _Frame | None = frame
                while at is not None and at.status is None:
                    at = at.parent
                return self._space.select(at.status if at else {}, path)
            case graphs.Condition(operator=name, operands=operands):
                return compare(name, [self._space.plain(self._evaluate(one, frame)) for one in operands])

    def _owner_of(self, scope: str, frame: _Frame) -> _Frame:
        here: _Frame | None = frame
        while here is not None and here.scope != self._scopes[scope].parent:
            here = here.parent
        assert here is not None
        return here

    def _status(self, root: _Frame) -> dict[str, Any]:
        state = "canceled" if self._canceled.is_set() else "failed" if self._errors else "succeeded"
        first = self._errors[0][1] if self._errors else None
        return {
            "state": state,
            "error": None if first is None else str(first),
            "failed": [name for name, _ in self._errors],
        }

    def _check(self) -> None:
        """Refuse a graph that cannot run: missing parameters, unknown ids, cycles."""
        missing = [name for name in self._graph.required if name not in self._params]
        if missing:
            raise UserError(f"Pipeline {self._graph.name!r} needs {', '.join(missing)}. Pass {missing[0]}=...")
        waits: dict[str, set[str]] = {}
        parts: list[graphs.Node | graphs.Scope] = [*self._graph.nodes, *self._graph.scopes]
        for part in parts:
            for needed, _ in self._dependencies(part):
                if needed not in self._nodes and needed not in self._scopes:
                    raise UserError(f"{part.id!r} depends on {needed!r}, which the pipeline does not have.")
                waits.setdefault(part.id, set()).add(needed)
        settled: set[str] = set()

        def visit(part: str, path: tuple[str, ...]) -> None:
            if part in path:
                raise UserError(f"Pipeline {self._graph.name!r} has a cycle: {' -> '.join([*path, part])}.")
            if part not in settled:
                for needed in waits.get(part, ()):
                    visit(needed, (*path, part))
                settled.add(part)

        for part_id in list(waits):
            visit(part_id, ())


def _expressions(part: graphs.Node | graphs.Scope) -> list[graphs.Expression]:
    if isinstance(part, graphs.Node):
        return list(part.inputs.values())
    return [one for one in (part.condition, part.items) if one is not None]


def _sources(expression: graphs.Expression) -> Iterator[str]:
    """Yield the nodes whose values an expression needs; for a collected list, the scope."""
    match expression:
        case graphs.Output(node=node):
            yield node
        case graphs.Collected(scope=scope):
            yield scope
        case graphs.ListOf(items=items):
            for item in items:
                yield from _sources(item)
        case graphs.DictOf(items=mapping):
            for item in mapping.values():
                yield from _sources(item)
        case graphs.Condition(operands=operands):
            for item in operands:
                yield from _sources(item)
        case _:
            return


def failure(result: Result, run: str) -> BaseException:
    """Return the exception that a caller sees for a graph that did not succeed."""
    if result.error is not None:
        return result.error
    what = f"failed at {', '.join(result.failed)}" if result.failed else "was cancelled"
    return StepFailed(f"{run} {what}.", kind="canceled" if result.state == "canceled" else "user")
