from __future__ import annotations

from typing import Any

import pytest

import trainlet as tl
from trainlet.core.graphs import Condition, Constant, Output, Parameter


@tl.step
def score(x: Any = 0) -> float:
    return 0.5


@tl.step
def deploy(x: Any = 0) -> str:
    return "done"


def test_steps_in_the_block_belong_to_a_scope_with_the_condition() -> None:
    @tl.pipeline
    def graph(least: float = 0.9) -> None:
        with tl.when(score() > least):
            deploy()
        deploy()

    found = graph.graph()
    (scope,) = found.scopes
    assert (scope.id, scope.kind, scope.parent) == ("when", "when", "root")
    assert scope.condition == Condition(operator=">", operands=(Output(node="score"), Parameter(name="least")))
    assert [node.scope for node in found.nodes] == ["root", "when", "root"]


def test_every_operator_has_its_condition() -> None:
    made: dict[str, Any] = {}

    @tl.pipeline
    def graph() -> None:
        s = score()
        made.update(
            {
                "==": s == 1, "!=": s != 1, "<": s < 1, "<=": s <= 1, ">": s > 1, ">=": s >= 1,
                "and": (s > 1) & True, "or": False | (s > 1), "not": ~(s > 1), "in": s.is_in([1, 2]),  # type: ignore[attr-defined]
            }
        )  # fmt: skip

    graph.graph()
    assert {name: future._expression.operator for name, future in made.items()} == {name: name for name in made}
    assert made["or"]._expression.operands[0] == Constant(value=False)


def test_a_reflected_comparison_keeps_its_meaning() -> None:
    found: list[Any] = []

    @tl.pipeline
    def graph() -> None:
        found.append(score() > 1)

    graph.graph()
    assert found[0]._expression == Condition(operator=">", operands=(Output(node="score"), Constant(value=1)))


def test_a_plain_future_is_taken_as_true_or_false() -> None:
    @tl.pipeline
    def graph() -> None:
        with tl.when(score()):
            deploy()

    assert graph.graph().scopes[0].condition == Condition(operator="truthy", operands=(Output(node="score"),))


def test_blocks_nest_and_their_conditions_may_be_passed_to_steps() -> None:
    @tl.pipeline
    def graph() -> None:
        first = score()
        with tl.when(first > 0):
            second = score(first)
            with tl.when(second > 1):
                deploy(second > 2)

    found = graph.graph()
    assert [(scope.id, scope.parent) for scope in found.scopes] == [("when", "root"), ("when-2", "when")]
    assert isinstance(found.node("deploy").inputs["x"], Condition)


@pytest.mark.parametrize(
    "use", [lambda x: deploy(x), lambda x: deploy([x]), lambda x: deploy(x > 1), lambda x: tl.future(deploy()).after(x)]
)
def test_what_a_block_made_is_not_used_outside_of_it(use: Any) -> None:
    @tl.pipeline
    def graph() -> None:
        with tl.when(score() > 0):
            inside = score()
        use(inside)

    with pytest.raises(tl.UserError, match="may never run"):
        graph.graph()


def test_a_condition_of_an_inner_and_an_outer_value_stays_inside() -> None:
    @tl.pipeline
    def graph() -> None:
        outer = score()
        with tl.when(outer > 0):
            mixed = outer > score()
        with tl.when(mixed):
            deploy()

    with pytest.raises(tl.UserError, match="may never run"):
        graph.graph()


def test_a_condition_that_is_known_now_is_an_error() -> None:
    @tl.pipeline
    def graph() -> None:
        with tl.when(1 > 2):
            deploy()

    with pytest.raises(tl.UserError, match="plain `if`"):
        graph.graph()


def test_it_works_inside_a_pipeline_only() -> None:
    with pytest.raises(tl.UserError, match=r"inside a @tl\.pipeline"), tl.when(True):
        pass
