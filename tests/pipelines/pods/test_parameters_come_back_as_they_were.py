"""KFP knows doubles only; what a step is given is what was meant all the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainlet as tl
from trainlet.core import graphs
from trainlet.core.errors import UserError
from trainlet_pipelines.pods import orders, shapes

sys.path.insert(0, str(Path(__file__).parents[2] / "kubeflow"))
from kfp_launcher import doubles, printed

WHOLE = st.integers(-shapes.EXACT, shapes.EXACT)
REAL = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)  # KFP drops the sign of -0.0
TEXT = st.text(st.characters(codec="utf-8"))


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int, WHOLE),
        (float, REAL),
        (bool, st.booleans()),
        (str, TEXT),
        (list[int], st.lists(WHOLE)),
        (list[float], st.lists(REAL)),
        (dict[str, list[float]], st.dictionaries(TEXT, st.lists(REAL))),
        (int | None, st.none() | WHOLE),
        (list[bool], st.lists(st.booleans())),
        (Literal["a", "b"], st.sampled_from(["a", "b"])),
    ],
)
@given(data=st.data())
def test_a_parameter_comes_back_with_its_annotated_kind(annotation: Any, values: Any, data: Any) -> None:
    value = data.draw(values)
    back = shapes.restore(json.loads(json.dumps(printed(doubles(value)))), shapes.of(annotation), "p")
    assert (back, repr(back)) == (value, repr(value))


@given(st.recursive(st.none() | st.booleans() | WHOLE | TEXT, lambda one: st.lists(one) | st.dictionaries(TEXT, one)))
def test_text_of_a_value_without_a_kfp_type_reads_back(value: Any) -> None:
    assert shapes.restore(shapes.to_text(value, "p"), "text", "p") == value


@pytest.mark.parametrize(("value", "shape"), [(1.5, "int"), ("x", "float"), (True, "float"), ("a", ["list", "int"])])
def test_a_value_that_does_not_fit_is_refused_by_name(value: Any, shape: Any) -> None:
    with pytest.raises(UserError, match="The parameter epochs is"):
        shapes.restore(value, shape, "epochs")


def test_artifacts_are_known_by_their_class() -> None:
    assert shapes.of(tl.Model) == ["artifact", "Model"]
    assert shapes.of(tl.Dataset | None) == ["artifact", "Dataset"]


@given(st.dictionaries(TEXT, TEXT | st.just("{{$}}") | st.just("{{=1}}") | st.just("{{{{workflow.name}}")))
def test_an_order_reads_back_and_holds_no_placeholder(texts: dict[str, str]) -> None:
    order = orders.Order(kind="value", inputs={"value": graphs.Constant(value=texts)})
    text = orders.text(order)
    assert "{{" not in text
    assert orders.read(text) == order


@pytest.mark.parametrize("text", ["", "[]", "{", '{"kind":"dance"}', '{"unknown":1}'])
def test_an_order_that_cannot_be_read_says_what_to_do(text: str) -> None:
    with pytest.raises(UserError, match="Compile the pipeline again"):
        orders.read(text)


def test_an_order_of_a_later_format_names_both() -> None:
    with pytest.raises(UserError, match="format 9, this image reads 1"):
        orders.read('{"format":9}')
