from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import trainlet as tl
from trainlet.core import graphs

if TYPE_CHECKING:
    from tests.sdk.conftest import Platform


@tl.step(gpu="A100", retries=1)
def train(data: list[int], lr: float = 0.1, *, ctx: tl.Context = tl.INJECTED) -> float:
    return sum(data) * lr


loose: Any = train


def test_remote_starts_a_graph_of_one_node_and_returns_the_result(platform: Platform) -> None:
    platform.answer = 0.6
    assert train.remote([1, 2, 3], lr=0.2) == 0.6
    (started,) = platform.started
    (node,) = started.graph.nodes
    assert node.inputs == {"data": graphs.Parameter(name="data"), "lr": graphs.Parameter(name="lr")}
    assert started.params == {"data": [1, 2, 3], "lr": 0.2}
    assert started.graph.required == ("data", "lr")
    assert started.graph.outputs == {"result": graphs.Output(node="train")}
    assert started.steps == {"tests-train": train}
    assert node.digest == train.spec().digest()


def test_an_argument_that_is_left_out_keeps_the_functions_own_default(platform: Platform) -> None:
    train.remote([1])
    assert platform.started[0].params == {"data": [1]}


def test_spawn_returns_the_run_without_waiting(platform: Platform) -> None:
    run = train.spawn([1])
    assert run is platform.started[0]


def test_map_runs_each_item_and_returns_the_results_in_order(platform: Platform) -> None:
    platform.answer = [0.1, 0.2]
    assert train.map([[1], [2]], lr=0.1, max_parallel=8, budget="20 USD") == [0.1, 0.2]
    (started,) = platform.started
    (scope,) = started.graph.scopes
    (node,) = started.graph.nodes
    assert (scope.kind, scope.max_parallel, started.budget_nano) == ("each", 8, 20 * 10**9)
    assert node.scope == scope.id
    assert node.inputs == {"lr": graphs.Parameter(name="lr"), "data": graphs.Item(scope=scope.id)}
    assert scope.items == graphs.Parameter(name="$items")
    assert started.params == {"$items": [[1], [2]], "lr": 0.1}
    assert isinstance(started.graph.outputs["result"], graphs.Collected)


def test_map_over_nothing_starts_nothing(platform: Platform) -> None:
    assert train.map([]) == []
    assert platform.started == []


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: loose.remote(), "misses 'data'"),
        (lambda: loose.remote([1], lrr=1), "Did you mean 'lr'"),
        (lambda: loose.remote([1], 2, 3), "takes 2 positional"),
        (lambda: loose.remote([1], ctx=None), "filled in by trainlet"),
        (lambda: loose.map([1], data=2), "omit data="),
        (lambda: loose.map([1], lrr=2), "Did you mean 'lr'"),
        (lambda: loose.map([1], max_parallel=0), "from 1"),
        (lambda: loose.map([1], budget="lots"), "budget="),
    ],
)
def test_wrong_arguments_are_an_error_before_anything_starts(platform: Platform, call: object, hint: str) -> None:
    with pytest.raises(tl.UserError) as caught:
        call()  # type: ignore[operator]
    assert hint in str(caught.value)
    assert platform.started == []


def test_the_spec_holds_every_option_and_the_bundle(platform: Platform) -> None:
    spec = train.with_options(timeout="1h", secrets=["hf-token"], name="tuned").spec()
    assert (spec.name, spec.bundle, spec.imports, spec.timeout_s) == ("tuned", "ab" * 32, ("numpy",), 3600)
    assert (spec.entry.qualname, spec.retries.times, spec.secrets) == ("train", 1, ("hf-token",))
    assert spec.digest() != train.spec().digest()


def test_remote_inside_a_pipeline_is_an_error_that_shows_the_call(platform: Platform) -> None:
    @tl.pipeline
    def graph() -> None:
        train.remote([1])

    with pytest.raises(tl.UserError, match=r"write train\(\.\.\.\)"):
        graph.graph()
