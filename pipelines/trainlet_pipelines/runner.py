"""The local graph runner: walks a graph, starts what is ready, and knows how the whole ended.

One thread walks; executors run tasks elsewhere and report back through a queue. A scope becomes a frame when it is
entered: one for a `when` that holds, one per item of an `each`. A task that fails does not stop its neighbors; what
depends on it is not started, exit scopes run in any case.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from trainlet.core import graphs, wire
from trainlet.core.errors import StepFailed, TrainletError
from trainlet_pipelines.failures import error_info
from trainlet_pipelines.plans import ROOT, Part, Plan
from trainlet_pipelines.values import Space, compare

State = Literal["succeeded", "failed", "canceled", "skipped", "blocked"]
Verdict = State | Literal["go"]
_BAD: tuple[State, ...] = ("failed", "blocked", "canceled")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task or a whole scope ended. `error` is the exception itself where there is one, `info` its description."""

    state: State
    value: Any = None
    error: BaseException | None = None
    info: wire.ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One task to run: a node, and the positions of the items it is inside of. A `final` one runs at the end."""

    node: graphs.Node
    index: tuple[int, ...]
    inputs: dict[str, Any]
    final: bool = False

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
        """Stop what runs; calls end as canceled. Final calls that come later run all the same where that can be."""
        ...


@dataclass(slots=True)
class _Fan:
    """The instances of a scope that was entered: one for a `when`, one per item for an `each`."""

    scope: graphs.Scope
    items: list[Any]
    at_once: int
    frames: list[_Frame] = field(default_factory=list)
    live: int = 0
    states: set[State] = field(default_factory=set)


@dataclass(slots=True)
class _Frame:
    """One instance of a scope."""

    scope: str
    index: tuple[int, ...]
    parent: _Frame | None
    item: Any = None
    final: bool = False
    status: Any = None
    parts: dict[str, Outcome] = field(default_factory=dict)
    waiting: dict[str, Part] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    fans: dict[str, _Fan] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return not self.waiting and not self.running


@dataclass(frozen=True, slots=True)
class Result:
    """How a graph ended: its outputs, or the first error with the task it came from."""

    state: Literal["succeeded", "failed", "canceled"]
    outputs: dict[str, Any]
    error: BaseException | None = None
    failed: tuple[str, ...] = ()


class Runner:
    """Runs one graph once. `run` blocks; `cancel` may come from another thread.

    Raises UserError for a graph that cannot run: missing parameters, unknown names, cycles.
    """

    def __init__(self, graph: graphs.Graph, params: Mapping[str, Any], space: Space, executor: Executor) -> None:
        self._plan = Plan(graph)
        self._plan.check_params(params)
        self._graph = graph
        self._params = params
        self._space = space
        self._executor = executor
        self._events: queue.SimpleQueue[tuple[_Frame, str, Outcome]] = queue.SimpleQueue()
        self._errors: list[tuple[str, Outcome]] = []
        self._stopped: list[BaseException] = []
        self._canceled = threading.Event()
        self._reason = ""

    def run(self) -> Result:
        """Run to the end and say how it went; only an interrupt of this thread is raised, after the exit scopes."""
        root = self._frame(ROOT, (), None)
        interrupt: KeyboardInterrupt | None = None
        try:
            self._walk(root)
        except KeyboardInterrupt as error:
            interrupt = error
            self.cancel("interrupted")
        status = self._space.wrap(self._status())
        for scope in self._graph.scopes:
            if scope.kind == "exit":
                frame = self._frame(scope.id, (), root)
                frame.final, frame.status = True, status
                self._walk(frame)
        if interrupt is not None:
            raise interrupt
        return self._result(root)

    def cancel(self, reason: str) -> None:
        """Stop: nothing new is started, what runs is asked to stop."""
        self._reason = reason
        self._canceled.set()
        self._executor.cancel(reason)

    def _result(self, root: _Frame) -> Result:
        failed = tuple(name for name, _ in self._errors)
        if self._errors and not self._canceled.is_set():
            return Result("failed", {}, self._errors[0][1].error, failed)
        if self._canceled.is_set() or self._stopped:
            return Result("canceled", {}, self._stopped[0] if self._stopped else None, failed)
        try:
            outputs = {
                name: self._space.pack(self._evaluate(value, root)) for name, value in self._graph.outputs.items()
            }
        except TrainletError as error:
            return Result("failed", {}, error)
        return Result("succeeded", outputs)

    # -- walking

    def _walk(self, frame: _Frame) -> None:
        self._advance(frame, frame.waiting)
        while not frame.over:
            self._executor.settle()
            owner, part, outcome = self._events.get()
            self._finished(owner, part, outcome)

    def _frame(self, scope: str, index: tuple[int, ...], parent: _Frame | None, item: Any = None) -> _Frame:
        final = parent is not None and parent.final
        frame = _Frame(scope, index, parent, item, final, parent.status if parent else None)
        for part in self._plan.parts[scope]:
            if isinstance(part, graphs.Node) or part.kind != "exit":
                frame.waiting[part.id] = part
        return frame

    def _advance(self, frame: _Frame, changed: Iterable[str]) -> None:
        """Start the parts among `changed` whose dependencies are settled, and what follows from that."""
        ready = deque(changed)
        while ready:
            part = frame.waiting.get(ready.popleft())
            if part is None:
                continue
            stopped = self._canceled.is_set() and not frame.final
            verdict: Verdict | None = "canceled" if stopped else self._verdict(part, frame)
            if verdict is None:
                continue
            del frame.waiting[part.id]
            if verdict != "go":
                frame.parts[part.id] = Outcome(verdict)
            elif isinstance(part, graphs.Node):
                self._start_node(part, frame)
            else:
                self._enter(part, frame)
            if part.id in frame.parts:
                ready.extend(self._plan.waiters.get(part.id, ()))

    def _verdict(self, part: Part, frame: _Frame) -> Verdict | None:
        """Return `go`, a state that the part gets without running, or None while it has to wait."""
        verdict: Verdict = "go"
        for needed, is_data in self._plan.needs[part.id]:
            owner = self._common(needed, frame)
            outcome = self._outcome_of(needed, owner)
            if frame.final and not owner.final:  # all else is over, or was given up
                if not is_data:
                    continue
                outcome = outcome or Outcome("canceled")
            if outcome is None:
                return None
            if outcome.state in _BAD:
                verdict = "blocked"
            elif outcome.state == "skipped" and is_data and verdict == "go":
                verdict = "skipped"
        return verdict

    def _start_node(self, node: graphs.Node, frame: _Frame) -> None:
        inputs: dict[str, Any] = {}
        for name, expression in node.inputs.items():
            try:
                inputs[name] = self._space.pack(self._evaluate(expression, frame))
            except TrainletError as error:
                self._note(frame, node.id, Outcome("failed", error=_about(error, f"{node.id}({name}=...)")))
                return
        frame.running.add(node.id)
        call = Call(node, frame.index, inputs, frame.final)
        self._executor.start(call, lambda outcome: self._events.put((frame, node.id, outcome)))

    def _enter(self, scope: graphs.Scope, frame: _Frame) -> None:
        try:
            if scope.condition is not None:
                if not self._space.plain(self._evaluate(scope.condition, frame)):
                    frame.parts[scope.id] = Outcome("skipped")
                    return
                items: list[Any] = [None]
            else:
                assert scope.items is not None
                items = self._space.items(self._evaluate(scope.items, frame))
        except TrainletError as error:
            self._note(frame, scope.id, Outcome("failed", error=_about(error, scope.id)))
            return
        frame.running.add(scope.id)
        frame.fans[scope.id] = fan = _Fan(scope, items, scope.max_parallel or len(items))
        self._feed(fan, frame)

    def _feed(self, fan: _Fan, frame: _Frame) -> None:
        """Enter items as others end, and settle the scope when its last instance has."""
        while len(fan.frames) < len(fan.items) and fan.live < fan.at_once:
            if self._canceled.is_set() and not frame.final:
                fan.states.add("canceled")
                break
            number = len(fan.frames)
            index = (*frame.index, number) if fan.scope.kind == "each" else frame.index
            child = self._frame(fan.scope.id, index, frame, fan.items[number])
            fan.frames.append(child)
            fan.live += 1
            self._advance(child, child.waiting.copy())
            if child.over:
                self._leave(child, fan)
        if fan.live == 0:
            frame.running.discard(fan.scope.id)
            bad = next((state for state in _BAD if state in fan.states), None)
            frame.parts[fan.scope.id] = Outcome(bad or "succeeded")

    def _leave(self, child: _Frame, fan: _Fan) -> None:
        fan.live -= 1
        fan.states.update(outcome.state for outcome in child.parts.values())

    def _finished(self, frame: _Frame, part: str, outcome: Outcome) -> None:
        frame.running.discard(part)
        self._note(frame, part, outcome)
        while True:
            stopped = self._canceled.is_set() and not frame.final
            self._advance(frame, list(frame.waiting) if stopped else self._plan.waiters.get(part, ()))
            parent = frame.parent
            if not frame.over or parent is None or frame.scope not in parent.fans:
                return
            fan = parent.fans[frame.scope]
            self._leave(frame, fan)
            self._feed(fan, parent)
            if frame.scope not in parent.parts:
                return
            frame, part = parent, frame.scope

    def _note(self, frame: _Frame, part: str, outcome: Outcome) -> None:
        frame.parts[part] = outcome
        if outcome.state == "failed":
            self._errors.append((".".join([part, *map(str, frame.index)]), outcome))
        elif outcome.state == "canceled":
            self._stopped.append(outcome.error or StepFailed(f"{part} was cancelled.", kind="canceled"))

    # -- looking up

    def _outcome_of(self, needed: str, owner: _Frame) -> Outcome | None:
        """Return the outcome of a part in a frame around it; for one inside another scope, that scope's."""
        neighbor = self._plan.neighbor(needed, owner.scope)
        return owner.parts.get(neighbor) if neighbor is not None else None

    def _common(self, needed: str, frame: _Frame) -> _Frame:
        """Return the innermost frame around both a part and a frame."""
        chain = self._plan.around[needed]
        while frame.scope not in chain:
            assert frame.parent is not None
            frame = frame.parent
        return frame

    def _value_of(self, node: str, frame: _Frame) -> Any:
        """Return the value of a node; None for one inside a `when` that was not entered."""
        frame = self._common(node, frame)
        chain = self._plan.around[node]
        for scope in chain[chain.index(frame.scope) + 1 :]:
            fan = frame.fans.get(scope)
            if fan is None or not fan.frames:
                return None
            frame = fan.frames[0]
        outcome = frame.parts.get(node)
        return None if outcome is None else outcome.value

    def _evaluate(self, expression: graphs.Expression, frame: _Frame) -> Any:
        match expression:
            case graphs.Constant(value=value):
                return self._space.constant(value)
            case graphs.Parameter(name=name):
                return self._params[name]
            case graphs.Output(node=node, path=path):
                return self._space.select(self._value_of(node, frame), path)
            case graphs.Item(scope=scope, path=path):
                while frame.scope != scope:
                    assert frame.parent is not None
                    frame = frame.parent
                return self._space.select(frame.item, path)
            case graphs.Collected(scope=scope, value=value):
                fan = self._common(scope, frame).fans.get(scope)
                return [self._evaluate(value, child) for child in fan.frames] if fan is not None else []
            case graphs.ListOf(items=items):
                return [self._evaluate(item, frame) for item in items]
            case graphs.DictOf(items=mapping):
                return {name: self._evaluate(item, frame) for name, item in mapping.items()}
            case graphs.RunStatus(path=path):
                if path[:1] == ("error",) and self._space.select(frame.status, ("error",)) is None:
                    return None
                return self._space.select(frame.status, path)
            case graphs.Condition(operator=name, operands=operands):
                return compare(name, [self._space.plain(self._evaluate(one, frame)) for one in operands])

    def _status(self) -> dict[str, Any]:
        """Return what `tl.run_status()` is at the end."""
        first = self._errors[0][1] if self._errors else None
        state = "failed" if self._errors else "canceled" if self._stopped else "succeeded"
        return {
            "state": "canceled" if self._canceled.is_set() else state,
            "error": None if first is None else first.info or error_info(first.error or StepFailed("failed")),
            "failed": [name for name, _ in self._errors],
        }


def _about(error: TrainletError, where: str) -> TrainletError:
    """Say in an error where in the pipeline it happened."""
    return type(error)(f"{where}: {error}")


def failure(result: Result, run: str) -> BaseException:
    """Return the exception that a caller sees for a graph that did not succeed."""
    if result.error is not None:
        return result.error
    what = f"failed at {', '.join(result.failed)}" if result.failed else "was cancelled"
    return StepFailed(f"{run} {what}.", kind="canceled" if result.state == "canceled" else "user")
