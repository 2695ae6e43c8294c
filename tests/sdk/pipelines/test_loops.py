from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import trainlet as tl
from trainlet.core.graphs import Collected, Constant, DictOf, Item, ListOf, Output, Parameter


@dataclass
class Part:
    name: str


@tl.step
def split(n: int = 3) -> list[Part]:
    return []


@tl.step
def score(x: Any, lr: float = 0.1) -> float:
    return lr


@tl.step
def best(scores: Any) -> float:
    return 0.0


def test_a_step_runs_for_each_item_and_the_results_are_collected() -> None:
    @tl.pipeline
    def graph() -> float:
        return best(tl.each(split(), score, max_parallel=8))

    found = graph.graph()
    (scope,) = found.scopes
    assert (scope.id, scope.kind, scope.items, scope.max_parallel) == ("each-score", "each", Output(node="split"), 8)
    assert found.node("score").inputs == {"x": Item(scope="each-score")}
    assert found.node("score").scope == "each-score"
    assert found.node("best").inputs["scores"] == Collected(scope="each-score", value=Output(node="score"))


def test_a_body_may_call_several_steps_and_use_what_is_around_it() -> None:
    @tl.pipeline
    def graph(lr: float = 0.1) -> Any:
        def body(part: Part) -> dict[str, float]:
            first = score(part.name, lr)
            return {"first": first, "second": score(first)}

        return tl.each(split(), body)

    found = graph.graph()
    assert found.node("score").inputs == {"x": Item(scope="each", path=("name",)), "lr": Parameter(name="lr")}
    value = DictOf(items={"first": Output(node="score"), "second": Output(node="score-2")})
    assert found.outputs["result"] == Collected(scope="each", value=value)


def test_items_may_be_a_list_of_constants_or_of_futures() -> None:
    @tl.pipeline
    def graph() -> None:
        tl.each(range(3), score)
        tl.each([split()[0], 2], score)

    first, second = graph.graph().scopes
    assert first.items == Constant(value=[0, 1, 2])
    assert second.items == ListOf(items=(Output(node="split", path=(0,)), Constant(value=2)))
    assert (first.id, second.id) == ("each-score", "each-score-2")


def test_loops_nest() -> None:
    @tl.pipeline
    def graph() -> Any:
        return tl.each([[1, 2], [3]], lambda row: tl.each(row, lambda cell: score(cell)))

    found = graph.graph()
    assert [(scope.id, scope.parent) for scope in found.scopes] == [("each", "root"), ("each-2", "each")]
    assert found.scopes[1].items == Item(scope="each")
    inner = Collected(scope="each-2", value=Output(node="score"))
    assert found.outputs["result"] == Collected(scope="each", value=inner)


def test_what_the_body_made_is_not_used_outside_of_it() -> None:
    kept: list[Any] = []

    @tl.pipeline
    def graph() -> None:
        tl.each([1], lambda x: kept.append(score(x)))
        best(kept[0])

    with pytest.raises(tl.UserError, match="Return it from the body"):
        graph.graph()


@pytest.mark.parametrize("items", [5, "abc", {"a": 1}, None])
def test_items_that_are_no_list_are_an_error(items: Any) -> None:
    @tl.pipeline
    def graph() -> None:
        tl.each(items, score)

    with pytest.raises(tl.UserError, match="list of items"):
        graph.graph()


@pytest.mark.parametrize("many", [0, -1, True, 1.5, "2"])
def test_a_bad_bound_is_an_error(many: Any) -> None:
    @tl.pipeline
    def graph() -> None:
        tl.each([1], score, max_parallel=many)

    with pytest.raises(tl.UserError, match="max_parallel"):
        graph.graph()


def test_a_body_that_is_no_function_is_an_error() -> None:
    @tl.pipeline
    def graph() -> None:
        tl.each([1], score(1))  # type: ignore[arg-type]

    with pytest.raises(tl.UserError, match="step or a function"):
        graph.graph()
