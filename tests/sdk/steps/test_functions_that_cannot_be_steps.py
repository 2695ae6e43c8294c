from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trainlet as tl


async def asynchronous() -> int:
    return 1


def generator() -> Iterator[int]:
    yield 1


class Trainer:
    def fit(self) -> int:
        return 1

    @classmethod
    def make(cls) -> Trainer:
        return cls()


def starred(*values: int) -> int:
    return sum(values)


def positional_only(x: int, /) -> int:
    return x


@pytest.mark.parametrize("decorate", [tl.step, tl.step(retries=1), tl.pipeline], ids=["bare", "options", "pipeline"])
@pytest.mark.parametrize(
    ("function", "fix"),
    [
        (asynchronous, "asyncio.run"),
        (generator, "`return` the list"),
        (Trainer, "Put it on a function"),
        (Trainer().fit, "plain function"),
        (Trainer.fit, "outside of the class"),
        (Trainer.make, "plain function"),
        (Trainer.__dict__["make"], "out of its class"),
        (staticmethod(starred), "out of its class"),
        (functools.partial(starred, 1), "Write a def"),
        (lambda: 1, "`def`"),
        (starred, "list[...]"),
        (positional_only, "Remove the `/`"),
        (len, "Write a def"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_an_error_with_the_fix_when_the_decorator_runs(
    decorate: Callable[[Any], Any], function: Any, fix: str
) -> None:
    with pytest.raises(tl.UserError) as caught:
        decorate(function)
    assert fix in str(caught.value)


def test_a_step_is_not_decorated_twice() -> None:
    @tl.step
    def once() -> int:
        return 1

    with pytest.raises(tl.UserError, match="with_options"):
        tl.step(once)
    with pytest.raises(tl.UserError, match="decorated already"):
        tl.pipeline(once)


def test_a_pipeline_is_no_step() -> None:
    @tl.pipeline
    def graph() -> None:
        return None

    with pytest.raises(tl.UserError, match="is a pipeline"):
        tl.step(graph)
