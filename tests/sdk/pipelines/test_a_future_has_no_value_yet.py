from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import trainlet as tl


@tl.step
def value() -> Any:
    return 1


def _if(x: Any) -> Any:
    return 1 if x else 2


def _for(x: Any) -> Any:
    for _ in x:
        pass


def _unpack(x: Any) -> Any:
    a, b = x
    return a, b


def _assign(x: Any) -> Any:
    x["k"] = 1


@pytest.mark.parametrize(
    ("use", "fix"),
    [
        (_if, "tl.when"),
        (lambda x: x > 1 and x < 3, "`&`"),
        (lambda x: not x, "tl.when"),
        (lambda x: 1 if x == 2 else 3, "tl.when"),
        (lambda x: 0 < x < 3, "`&`"),
        (lambda x: x in [1, 2], "is_in"),
        (lambda x: 1 in x, "tl.when"),
        (_for, "tl.each"),
        (_unpack, "out[0]"),
        (list, "tl.each"),
        (lambda x: [*x], "tl.each"),
        (range, "tl.each"),
        (len, "returns the length"),
        (int, "converts it"),
        (float, "converts it"),
        (str, "makes the text"),
        (lambda x: f"{x}", "makes the text"),
        (lambda x: f"{x:.2f}", "makes the text"),
        (lambda x: "{}".format(x), "makes the text"),  # noqa: UP032
        (lambda x: "%s" % x, "makes the text"),  # noqa: UP031
        (print, "makes the text"),
        (lambda x: {x: 1}, "may be the values"),
        (lambda x: {x}, "may be the values"),
        (lambda x: [1, 2][x], "inside a step"),
        (lambda x: x[x], "inside a step"),
        (lambda x: x[1:2], "whole number"),
        (lambda x: x + 1, "computes the result"),
        (lambda x: 2 * x, "computes the result"),
        (lambda x: -x, "computes the result"),
        (abs, "computes the result"),
        (lambda x: x(), "inside a step"),
        (_assign, "from a step"),
        (copy.deepcopy, "straight to a step"),
        (pickle.dumps, "straight to a step"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_using_it_as_a_value_is_an_error_that_says_what_to_use(use: Callable[[Any], Any], fix: str) -> None:
    @tl.pipeline
    def graph() -> None:
        use(value())

    with pytest.raises(tl.UserError) as caught:
        graph.graph()
    assert fix in str(caught.value)
    assert "value" in str(caught.value).split(":", 2)[2], "the message names the step"
    assert "test_a_future_has_no_value_yet.py" in str(caught.value), "the message names the user's line"


def test_a_parameter_of_the_pipeline_is_one_too() -> None:
    @tl.pipeline
    def graph(deep: bool = False) -> None:
        if deep:
            value()

    with pytest.raises(tl.UserError, match=r"deep is used as a truth value .* tl\.when"):
        graph.graph()


def test_its_repr_is_readable_for_debuggers() -> None:
    shown: list[str] = []

    @tl.pipeline
    def graph() -> None:
        shown.append(repr(value()["a"][0]))

    graph.graph()
    assert shown == ["<future value.a[0]>"]
