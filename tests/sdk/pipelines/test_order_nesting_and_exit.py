from __future__ import annotations

from typing import Any

import pytest

import trainlet as tl
from trainlet.core.graphs import Constant, Output, Parameter, RunStatus


@tl.step
def work(x: Any = 0) -> Any:
    return x


@tl.step
def notify(status: Any, note: Any = "") -> None:
    return None


@tl.pipeline
def inner(x: Any, factor: int = 2) -> dict[str, Any]:
    first = work(x)
    return {"first": first, "second": work([first, factor])}


def test_after_orders_steps_without_data() -> None:
    @tl.pipeline
    def graph() -> None:
        a, b = work(), work()
        work().after(a, b).after(a)

    assert graph.graph().node("work-3").after == ("work", "work-2")


def test_after_a_loop_waits_for_its_steps_and_a_loop_can_wait() -> None:
    @tl.pipeline
    def graph() -> None:
        first = work()
        many: Any = tl.each([1, 2], work)
        many.after(first)
        work().after(many)

    found = graph.graph()
    assert found.scopes[0].after == ("work",)
    assert found.node("work-3").after == ("work-2",)


@pytest.mark.parametrize("shape", ["itself", "data", "order", "loop"])
def test_a_cycle_is_an_error(shape: str) -> None:
    @tl.pipeline
    def graph() -> None:
        a = work()
        if shape == "itself":
            a.after(a)
        elif shape == "data":
            a.after(work([work(a)]))
        elif shape == "order":
            a.after(work().after(a))
        else:
            many: Any = tl.each([a], work)
            a.after(many)

    with pytest.raises(tl.UserError, match="cycle"):
        graph.graph()


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda a, p: a.after(1), "not a int"),
        (lambda a, p: a.after(p), "no step behind it"),
        (lambda a, p: a["k"].after(work()), "not the result of a step call"),
        (lambda a, p: p.after(a), "not the result of a step call"),
    ],
)
def test_after_something_that_is_no_step_is_an_error(use: Any, hint: str) -> None:
    @tl.pipeline
    def graph(p: int = 1) -> None:
        use(work(), p)

    with pytest.raises(tl.UserError, match=hint):
        graph.graph()


def test_a_pipeline_inside_a_pipeline_is_inlined_under_its_name() -> None:
    @tl.pipeline
    def graph(x: int = 1) -> Any:
        one = inner(x)
        two = inner(one["second"], factor=3)
        return two["first"]

    found = graph.graph()
    assert [node.id for node in found.nodes] == ["inner-work", "inner-work-2", "inner-2-work", "inner-2-work-2"]
    assert found.node("inner-work").inputs["x"] == Parameter(name="x")
    assert found.node("inner-2-work").inputs["x"] == Output(node="inner-work-2")
    assert found.outputs["result"] == Output(node="inner-2-work")


def test_arguments_of_an_inlined_pipeline_are_futures_too() -> None:
    @tl.pipeline
    def branch(deep: bool) -> None:
        with tl.when(deep):
            work()

    @tl.pipeline
    def hasty(deep: bool) -> None:
        if deep:
            work()

    @tl.pipeline
    def graph() -> None:
        branch(True)

    @tl.pipeline
    def wrong() -> None:
        hasty(True)

    condition = graph.graph().scopes[0].condition
    assert condition is not None
    assert condition.operands == (Constant(value=True),)
    with pytest.raises(tl.UserError, match="deep is used as a truth value"):
        wrong.graph()


def test_a_part_of_a_constant_argument_is_a_constant() -> None:
    @tl.pipeline
    def configured(config: dict[str, Any]) -> None:
        work(config["layers"][1])

    @tl.pipeline
    def graph() -> None:
        configured({"layers": [8, 16]})

    assert graph.graph().nodes[0].inputs["x"] == Constant(value=16)


def test_a_pipeline_inside_itself_is_an_error() -> None:
    @tl.pipeline
    def forever() -> None:
        work()
        forever()

    with pytest.raises(tl.UserError, match="calls itself"):
        forever.graph()


def test_an_inlined_pipeline_checks_its_arguments() -> None:
    @tl.pipeline
    def graph() -> None:
        inner(1, facto=3)  # type: ignore[call-arg]

    with pytest.raises(tl.UserError, match="'factor'"):
        graph.graph()


def test_the_exit_block_runs_with_the_status_of_the_run() -> None:
    @tl.pipeline
    def graph(note: str = "hi") -> Any:
        with tl.on_exit():
            notify(tl.run_status(), note)
            notify(tl.run_status()["state"])
        return work()

    found = graph.graph()
    (scope,) = found.scopes
    assert (scope.id, scope.kind) == ("on-exit", "exit")
    assert found.node("notify").inputs == {"status": RunStatus(), "note": Parameter(name="note")}
    assert found.node("notify-2").inputs == {"status": RunStatus(path=("state",))}
    assert found.node("work").scope == "root"


def test_the_exit_block_does_not_read_results_that_may_be_missing() -> None:
    @tl.pipeline
    def graph() -> None:
        result = work()
        with tl.on_exit():
            notify(result)

    with pytest.raises(tl.UserError, match="also runs when that step failed"):
        graph.graph()


def test_the_exit_block_is_at_the_top_and_the_status_is_inside_of_it() -> None:
    @tl.pipeline
    def deep() -> None:
        with tl.when(work() > 1), tl.on_exit():
            notify(1)

    @tl.pipeline
    def early() -> None:
        notify(tl.run_status())

    with pytest.raises(tl.UserError, match="whole pipeline"):
        deep.graph()
    with pytest.raises(tl.UserError, match=r"with tl\.on_exit"):
        early.graph()


def test_wrong_options_of_a_pipeline_are_errors() -> None:
    with pytest.raises(tl.UserError, match="'name'"):
        tl.pipeline(nam="x")  # type: ignore[call-overload]
    with pytest.raises(tl.UserError, match="keyword-only"):
        tl.pipeline("x")  # type: ignore[call-overload]

    def wants(ctx: tl.Context) -> None:
        return None

    with pytest.raises(tl.UserError, match="no context"):
        tl.pipeline(wants)
    assert tl.pipeline(name="nightly")(work.__wrapped__).name == "nightly"  # type: ignore[attr-defined]
