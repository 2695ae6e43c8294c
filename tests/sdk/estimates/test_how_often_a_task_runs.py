"""A graph says how often each of its tasks runs, where no result decides it."""

from __future__ import annotations

from typing import Any

import pytest

import trainlet as tl
from trainlet import estimates
from trainlet.core.errors import UserError
from trainlet.core.estimates import Estimate, EstimateRequest


@tl.step(gpu="A100:2", timeout="1h", retries=1)
def train(x: Any) -> int:
    return 1


@tl.step
def split(n: int) -> list[int]:
    return [1]


@tl.pipeline
def flow(sizes: list[int], n: int = 1) -> None:
    tl.each(sizes, train)
    tl.each(split(n), train)
    tl.each([1, 2, 3], train)


class Api:
    """Answers nothing, and keeps what was asked."""

    asked: EstimateRequest

    def _call(self, method: str, path: str, reply: type[Estimate], body: EstimateRequest) -> Estimate:
        self.asked = body
        empty: dict[str, Any] = {"cost_nano": 0, "most_nano": None, "gpu_seconds": 0, "complete": True}
        return Estimate(rows=[], **empty, currency="USD", price_version="v", starts_at="now")


def asked(duration: Any = None, **params: Any) -> Any:
    api: Any = Api()
    traced = flow.trace(params, resolve=False)
    values = {**traced.values, **params}
    estimates.of_graph(api, traced.graph, values, estimates.needs_of(traced.steps), duration)
    return {step.node: step for step in api.asked.steps}


def test_items_that_are_known_are_counted_and_those_of_a_result_are_not() -> None:
    steps = asked(sizes=[1, 2, 3, 4])
    assert [(name, step.tasks) for name, step in steps.items()] == [
        ("train", 4), ("split", 1), ("train-2", None), ("train-3", 3),
    ]  # fmt: skip
    assert asked()["train"].tasks is None


def test_a_timeout_is_for_every_try_with_the_time_to_save() -> None:
    assert asked()["train"].most_s == 2 * (3600 + 30)
    assert asked()["split"].most_s is None


def test_durations_are_for_all_tasks_or_by_name_in_whole_seconds() -> None:
    assert {step.phases for step in asked("90.2s").values()} == {(("run", 91),)}
    named = asked({"train": "2h"})
    assert (named["train"].phases, named["train-2"].phases) == ((("run", 7200),), ())
    with pytest.raises(UserError, match=r"'trian', which is no task here\. Did you mean 'train'"):
        asked({"trian": "2h"})
    with pytest.raises(UserError, match="longer than ten years"):
        asked("600w")


def test_how_many_tasks_of_a_step_must_be_a_number() -> None:
    with pytest.raises(UserError, match="tasks=-1 is no number of tasks"):
        train.estimate("2h", tasks=-1)
