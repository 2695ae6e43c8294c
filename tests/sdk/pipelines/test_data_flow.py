from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

import trainlet as tl
from trainlet.core.graphs import Constant, DictOf, ListOf, Output, Parameter


@dataclass
class Score:
    loss: float
    parts: dict[str, int]


class Pair(NamedTuple):
    left: Score
    right: int


class Settings(BaseModel):
    rate: float


@tl.step
def prepare(seed: int = 7) -> list[int]:
    return [seed]


@tl.step
def train(data: Any, lr: float = 0.1) -> Score:
    return Score(lr, {})


@tl.step
def pair() -> Pair:
    return Pair(Score(0.0, {}), 1)


@tl.step
def settings() -> Settings:
    return Settings(rate=0.1)


@tl.step
def untyped(x=None):  # type: ignore[no-untyped-def]
    return x


def test_calls_become_nodes_and_arguments_become_edges() -> None:
    @tl.pipeline
    def digits(lr: float = 0.1) -> Score:
        """Train on digits.

        More words.
        """
        return train(prepare(), lr)

    graph = digits.graph()
    assert (graph.name, graph.description, graph.parameters, graph.required) == (
        "digits",
        "Train on digits.",
        {"lr": 0.1},
        (),
    )
    assert [(node.id, node.function) for node in graph.nodes] == [
        ("prepare", "tests-prepare"),
        ("train", "tests-train"),
    ]
    assert graph.node("train").inputs == {"data": Output(node="prepare"), "lr": Parameter(name="lr")}
    assert graph.outputs == {"result": Output(node="train")}


def test_the_same_step_twice_gets_a_numbered_id() -> None:
    @tl.pipeline
    def twice() -> None:
        prepare(1)
        prepare(2)
        prepare(3)

    assert [node.id for node in twice.graph().nodes] == ["prepare", "prepare-2", "prepare-3"]


def test_parts_of_a_result_are_paths() -> None:
    @tl.pipeline
    def parts() -> dict[str, Any]:
        both = pair()
        loose = untyped()
        return {
            "field": both.left.loss,
            "key": both.left.parts["a"],
            "index": both[0],
            "model": settings().rate,
            "loose": loose["x"][0]["y"],
        }

    outputs = parts.graph().outputs
    assert outputs == {
        "field": Output(node="pair", path=("left", "loss")),
        "key": Output(node="pair", path=("left", "parts", "a")),
        "index": Output(node="pair", path=(0,)),
        "model": Output(node="settings", path=("rate",)),
        "loose": Output(node="untyped", path=("x", 0, "y")),
    }


def test_futures_travel_in_lists_and_dictionaries() -> None:
    @tl.pipeline
    def nested() -> None:
        data = prepare()
        untyped({"all": [data, 1, (data, "a")], "n": 2})

    value = nested.graph().node("untyped").inputs["x"]
    data = Output(node="prepare")
    assert value == DictOf(
        items={
            "all": ListOf(items=(data, Constant(value=1), ListOf(items=(data, Constant(value="a"))))),
            "n": Constant(value=2),
        }
    )


def test_json_constants_keep_their_types_and_are_not_shared_with_the_caller() -> None:
    value = {"layers": [1, 2.0, True, None]}

    @tl.pipeline
    def constants() -> None:
        untyped(value)

    graph = constants.graph()
    value["layers"].append(3)
    found = graph.node("untyped").inputs["x"]
    assert found == Constant(value={"layers": [1, 2.0, True, None]})


@pytest.mark.parametrize("value", [(1, 2), {1}, b"x", float("nan"), Score(1.0, {}), {"$trainlet": 1}, {1: 2}], ids=repr)
def test_other_constants_wait_in_a_side_table_until_the_run_encodes_them(value: Any) -> None:
    @tl.pipeline
    def raw() -> None:
        untyped(value)

    traced = raw.trace({}, resolve=False)
    assert traced.graph.node("untyped").inputs["x"] == Parameter(name="$const-1")
    assert traced.graph.required == ("$const-1",)
    assert traced.values["$const-1"] is value


def test_a_parameter_without_a_default_is_required_and_one_that_is_not_json_is_kept_raw() -> None:
    @tl.pipeline
    def asks(data: Any, kinds: Any = frozenset({1})) -> None:
        untyped([data, kinds])

    traced = asks.trace({}, resolve=False)
    assert traced.graph.required == ("data", "kinds")
    assert traced.values == {"kinds": frozenset({1})}
    assert asks.graph(data=[1]).parameters == {"data": [1]}
    with pytest.raises(tl.UserError, match="misses 'data'"):
        asks.run()
    with pytest.raises(tl.UserError, match="'kinds'"):
        asks.run(data=1, kind=2)


def test_a_field_that_does_not_exist_is_an_error_that_names_the_nearest() -> None:
    @tl.pipeline
    def misspelt() -> None:
        untyped(train(1).los)  # type: ignore[attr-defined]

    with pytest.raises(tl.UserError, match="Did you mean 'loss'"):
        misspelt.graph()


def test_an_attribute_of_an_unknown_type_is_an_error_that_says_what_to_use() -> None:
    @tl.pipeline
    def unknown() -> None:
        untyped(untyped().loss)

    with pytest.raises(tl.UserError, match=r'use \["loss"\]'):
        unknown.graph()


def test_hasattr_answers_instead_of_raising() -> None:
    found: list[bool] = []

    @tl.pipeline
    def asks() -> None:
        result = train(1)
        found.extend([hasattr(result, "loss"), hasattr(result, "zzz"), hasattr(result, "_repr_html_")])

    asks.graph()
    assert found == [True, False, False]


def test_wrong_arguments_are_an_error_while_tracing_with_the_line_of_the_call() -> None:
    @tl.pipeline
    def wrong() -> None:
        train()  # type: ignore[call-arg]

    with pytest.raises(
        tl.UserError, match=r"test_data_flow\.py:\d+: train\(\) misses 'data'\. It is train\(data, lr=0\.1\)"
    ):
        wrong.graph()


def test_a_future_inside_an_object_is_an_error() -> None:
    @tl.pipeline
    def hidden() -> None:
        untyped(Score(train(1).loss, {}))

    with pytest.raises(tl.UserError, match="inside a Score"):
        hidden.graph()


def test_a_future_of_another_trace_is_an_error() -> None:
    kept: list[Any] = []

    @tl.pipeline
    def first() -> None:
        kept.append(prepare())

    @tl.pipeline
    def second() -> None:
        untyped(kept[0])

    first.graph()
    with pytest.raises(tl.UserError, match="belongs to another pipeline"):
        second.graph()
    with pytest.raises(tl.UserError, match="has no value here"):
        untyped(kept[0])
    with pytest.raises(tl.UserError, match="after its pipeline 'first' was traced"):
        _ = kept[0] > 1


def test_two_steps_of_one_name_are_an_error_and_an_equal_copy_is_not() -> None:
    @tl.pipeline
    def clash() -> None:
        prepare(1)
        prepare.with_options(retries=1)(2)

    @tl.pipeline
    def same() -> None:
        prepare(1)
        prepare.with_options()(2)

    with pytest.raises(tl.UserError, match=r"with_options\(name="):
        clash.graph()
    assert len(same.graph().nodes) == 2


def test_an_error_in_the_pipeline_function_closes_the_trace() -> None:
    @tl.pipeline
    def breaks() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks.graph()
    assert prepare(3) == [3]


def test_a_pipeline_called_outside_of_one_says_how_to_run_it() -> None:
    @tl.pipeline
    def digits() -> None:
        prepare()

    with pytest.raises(tl.UserError, match=r"digits\.local"):
        digits()


def test_the_graph_survives_json() -> None:
    @tl.pipeline
    def digits(lr: float = 0.1) -> Score:
        data = prepare()
        with tl.when(data[0] > 3):
            untyped(data)
        tl.each(data, untyped)
        return train(data, lr)

    graph = digits.graph()
    assert type(graph).model_validate_json(graph.model_dump_json()) == graph
