"""`@tl.on_event` and `@tl.on_schedule`: what could never work is an error at the decorator's line, with what to do."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

import trainlet as tl
from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.triggers import named, tried

CREATED = "com.example.created"
S3 = "s3://digits-raw"


@tl.step
def train(data: Any) -> Any:
    return data


@tl.pipeline
def text(data: str) -> Any:
    return train(data)


@tl.pipeline
def number(data: float) -> Any:
    return train(data)


@tl.pipeline
def texts(data: list[str]) -> Any:
    return train(data)


@tl.pipeline
def model(data: tl.Model) -> Any:
    return train(data)


@tl.pipeline
def array(data: np.ndarray) -> Any:
    return train(data)


@tl.pipeline
def moment(data: datetime.datetime) -> Any:
    return train(data)


@tl.pipeline
def rows(data: dict[str, list[dict[str, str | int] | None]]) -> Any:
    return train(data)


def event(data: Any, **attributes: Any) -> dict[str, Any]:
    return events.make(CREATED, S3, "1", data, **attributes).to_json()


def on(pipeline: Any, kind: str = CREATED, **options: Any) -> Any:
    return tl.on_event(kind, **{"params": {"data": "$.data.uri"}, **options})(pipeline)


def gives(pipeline: Any, data: Any) -> Any:
    """Return what one event gives to `data`, or what is wrong."""
    (trigger,) = named(pipeline).values()
    found = tried(trigger, events.from_json(event(data)))
    return found["error"] or found["params"]["data"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: on(text, params={"date": "$.id"}), "no parameter 'date'. Did you mean 'data'"),
        (lambda: on(text, params={}), "needs data, and nothing gives it"),
        (lambda: on(text, params={"data": "$.data["}), "is no path"),
        (lambda: on(text, params={"data": "$.data[?@.x]"}), "is no path"),
        (lambda: on(text, params={"data": 7}), "data=7 does not fit str"),
        (lambda: on(text, params={"data": {"path": "$.data", "default": 7}}), "the default gives what does not fit"),
        (lambda: on(model), "data is annotated as Model, and an event holds JSON"),
        (lambda: on(array), "data is annotated as ndarray"),
        (lambda: on(moment), "data is annotated as datetime"),
        (lambda: on(text, places=["digits-raw"]), "'digits-raw' is no place"),
        (lambda: on(text, places=["s3://a/../b"]), "is no place"),
        (lambda: on(number, example=event({"uri": "many"})), "'many' is not of type 'number'"),
        (lambda: on(text, example=event({})), "$.data.uri finds nothing"),
        (lambda: on(text, example=event({"uri": "s3://other/x"}), source=S3), "lies in none of s3://digits-raw"),
        (lambda: on(text, kind="com.example.other", example=event({"uri": "x"})), "example= does not match"),
        (lambda: on(text, where="subject LIKE"), "cesql"),
        (lambda: on(text, filters=[{"exact": {}}]), "must map attributes"),
        (lambda: on(text, window="ten minutes"), "window="),
        (lambda: on(text, rate="4"), 'Write runs per period: "4/h"'),
        (lambda: on(text, rate="4/fortnight"), "is no period"),
        (lambda: on(text, budget="50 USD"), "has no period"),
        (lambda: on(text, concurrency="forbidden"), "Did you mean 'forbid'"),
        (lambda: on(text, max_batch=0), "max_batch=0 is not valid"),
        (lambda: on(text, poll="1s"), "poll= needs a source="),
        (lambda: on(text, name="Mine"), "is no name"),
        (lambda: on(text, kubeflow={"pipline": "digits"}), "Did you mean 'pipeline'"),
        (lambda: on(text, kubeflow={"version": "v1"}), "Name the pipeline"),
        (lambda: on(text, kubeflow={"pipeline": "digits", "service_account": "Not A Name"}), "kubeflow="),
        (lambda: on(text, kind=""), "names no type of event"),
        (lambda: on(train), "which is no pipeline"),
        (lambda: tl.on_schedule("0 3 * *", params={"data": "x"})(text), "has 4 fields"),
        (lambda: tl.on_schedule("0 0 31 2 *", params={"data": "x"})(text), "can never come"),
        (lambda: tl.on_schedule("0 3 * * *", tz="Europe/Berlyn", params={"data": "x"})(text), "Europe/Berlin"),
        (lambda: tl.on_schedule("0 3 * * *", catch_up="last", params={"data": "x"})(text), "catch_up='last'"),
        (lambda: tl.on_schedule("0 3 * * *")(text), "needs data"),
    ],
)  # fmt: skip
def test_what_can_never_work_is_an_error_at_its_line(make: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert said in str(error.value)
    assert "test_triggers_are_checked_where_they_are_written.py:" in str(error.value)


def test_an_event_gives_what_the_annotation_asks_for_or_is_told_why_not() -> None:
    assert gives(on(number), {"uri": 3}) == 3
    assert "Parameter data: $.data.uri gives what does not fit" in gives(on(number), {"uri": "3"})
    assert gives(on(rows, params={"data": "$.data"}), {"a": [{"name": "x", "size": 1}, None]})["a"][1] is None
    assert "at ['a'][0]" in gives(on(rows, params={"data": "$.data"}), {"a": [{"size": 1.5}]})


def test_a_default_stands_for_what_an_event_does_not_have() -> None:
    with_default = on(text, params={"data": {"path": "/data/uri", "default": "none"}})
    assert gives(with_default, {}) == "none"
    assert gives(with_default, {"uri": "a"}) == "a"
    assert "does not fit" in gives(with_default, {"uri": 7}), "a wrong value is no missing one"


def test_a_list_gets_one_value_or_all_of_those_that_an_event_has() -> None:
    assert gives(on(texts), {"uri": "a"}) == ["a"]
    assert gives(on(texts), {"uri": ["a", "b"]}) == ["a", "b"]
    assert gives(on(texts, params={"data": "$.data.files[*].uri"}), {"files": [{"uri": "a"}, {"uri": "b"}]}) == [
        "a",
        "b",
    ]
    assert "7 is not of type 'string'" in gives(on(texts), {"uri": ["a", 7]})


def test_a_constant_that_looks_like_a_path_is_written_as_a_value() -> None:
    assert gives(on(text, params={"data": {"value": "/mnt/data"}}), {}) == "/mnt/data"


@pytest.mark.parametrize(
    ("uri", "fine"),
    [
        ("s3://digits-raw/images/1.png", True),
        ("s3://digits-raw", True),
        ("no URI at all", True),
        ("s3://digits-raw-2/images/1.png", False),
        ("s3://digits-raw@evil/images", False),
        ("s3://digits-raw/../other/x", False),
        ("s3://digits-raw/%2e%2e/other/x", False),
        ("S3://other/x", False),
        ("s3:/other/x", False),
        ("  s3://other/x", False),
        ("https://example.com/x", False),
    ],
)
def test_S1_an_event_of_a_bucket_names_only_what_is_in_it(uri: str, fine: bool) -> None:
    """The default: places are the source, where that is one."""
    found = gives(on(text, source=S3), {"uri": uri})
    assert (found == uri) is fine, found
    nested = gives(on(rows, source=S3, params={"data": "$.data"}), {"a": [{"name": uri, "size": 1}]})
    assert isinstance(nested, dict) is fine


def test_S1_places_may_be_named_and_folders_are_places_too() -> None:
    elsewhere = on(text, places=["s3://a/images", "file:///data"])
    for uri in ("s3://a/images/1", "file:///data/x", "/data/x"):
        assert gives(elsewhere, {"uri": uri}) == uri
    for uri in ("s3://a/imagesque/1", "s3://b/images/1", "/etc/passwd", "~/x", "/data/../etc/passwd"):
        assert "lies in none of" in gives(elsewhere, {"uri": uri})


def test_triggers_have_names_that_can_be_told_apart() -> None:
    both = tl.on_event(CREATED, params={"data": "$.id"})(tl.on_event(CREATED, params={"data": "$.id"})(text))
    assert list(named(both)) == ["text-created", "text-created-2"]
    same = tl.on_event(CREATED, name="x", params={"data": "$.id"})(
        tl.on_event(CREATED, name="x", params={"data": "$.id"})(text)
    )
    with pytest.raises(UserError, match="two triggers 'x'"):
        named(same)
    assert text.triggers == (), "a decorator returns a pipeline of its own"
