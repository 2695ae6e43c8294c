"""What shapes a pipeline while it is traced: `tl.when`, `tl.each`, `tl.on_exit`, `tl.run_status`.

Each opens a scope in the trace; what is called inside belongs to it. They must not know how a scope is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypedDict, TypeVar

from trainlet import locations, steps, tracing
from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet.core.wire import ErrorInfo
from trainlet.futures import Future, element_type

R = TypeVar("R")
T = TypeVar("T")


class RunStatus(TypedDict):
    """What `tl.run_status()` is when the step at the end runs: the outcome so far."""

    state: str
    error: ErrorInfo | None
    failed: list[str]


@contextmanager
def when(condition: object) -> Iterator[None]:
    """Run the steps of the block only if the condition holds: `with tl.when(score > 0.9):`."""
    trace = tracing.required("tl.when")
    if not isinstance(condition, Future):
        raise UserError(
            f"{locations.caller()}: tl.when({condition!r}) got a value that is known now. Use a plain `if` for it."
        )
    expression = trace.expression(condition, "tl.when(...)")
    if not isinstance(expression, graphs.Condition):
        expression = graphs.Condition(operator="truthy", operands=(expression,))
    scope = graphs.Scope(id=trace.unique("when"), kind="when", parent=trace.stack[-1], condition=expression)
    with trace.scope(scope):
        yield


def each(items: Iterable[T], body: Callable[[T], R], *, max_parallel: int | None = None) -> list[R]:
    """Run `body` (a step, a pipeline, or a function that calls steps) for each item; the future of all results.

    The results are in the order of the items. `max_parallel` bounds how many instances run at once.
    """
    trace = tracing.required("tl.each")
    if isinstance(body, Future) or not callable(body):
        raise UserError(f"{locations.caller()}: tl.each(items, body) needs a step or a function, not {body!r}.")
    if not isinstance(items, Future):
        if isinstance(items, (str, bytes, dict)) or not isinstance(items, Iterable):
            raise UserError(f"{locations.caller()}: tl.each needs a list of items, not a {type(items).__name__}.")
        items = list(items)
    expression = trace.expression(items, "tl.each(items, ...)")
    name = steps.node_label(getattr(body, "__name__", "body"))
    label = "each" if name in ("lambda", "body") else f"each-{name}"
    outer = trace.stack[-1]
    scope = graphs.Scope(
        id=trace.unique(label),
        kind="each",
        parent=outer,
        items=expression,
        max_parallel=steps.check_parallel(max_parallel),
    )
    item_type = element_type(items._annotation, 0) if isinstance(items, Future) else Any
    with trace.scope(scope):
        item: Any = Future(trace, graphs.Item(scope=scope.id), f"{scope.id}.item", item_type, scope.id)
        result = body(item)
        value = trace.expression(result, "the result of tl.each's body")
    inner = result._annotation if isinstance(result, Future) else Any
    collected = graphs.Collected(scope=scope.id, value=value)
    annotation = list if inner is Any else list[inner]  # type: ignore[valid-type]
    return Future(trace, collected, scope.id, annotation, outer)  # type: ignore[return-value]


def future(value: R) -> Future[R]:
    """Return a step's result as the future that it is while tracing: `tl.future(deploy(model)).after(checked)`.

    It changes nothing at run time; a type checker, which sees the step's own result type, then knows `.after`.
    """
    if not isinstance(value, Future):
        raise UserError(f"{locations.caller()}: {value!r} is no future: it is not the result of a step in a pipeline.")
    return value


def on_exit() -> AbstractContextManager[None]:
    """Run the steps of the block at the end, whatever happened: `with tl.on_exit(): notify(tl.run_status())`."""
    trace = tracing.required("tl.on_exit")
    if trace.stack != ["root"]:
        at, inside = locations.caller(), trace.stack[-1]
        raise UserError(f"{at}: tl.on_exit belongs to the whole pipeline; move it out of {inside!r}.")
    return _exit_scope(trace)


@contextmanager
def _exit_scope(trace: tracing.Trace) -> Iterator[None]:
    with trace.scope(graphs.Scope(id=trace.unique("on-exit"), kind="exit")):
        yield


def run_status() -> RunStatus:
    """Inside `tl.on_exit`: the outcome of the run, `{"state": ..., "error": ..., "failed": [...]}`."""
    trace = tracing.required("tl.run_status")
    scope = next((one for one in trace.stack if one != "root" and trace.scopes[one].kind == "exit"), None)
    if scope is None:
        at = locations.caller()
        raise UserError(f"{at}: tl.run_status() is known at the end: use it inside `with tl.on_exit():`.")
    return Future(trace, graphs.RunStatus(), "run_status", RunStatus, scope)  # type: ignore[return-value]
