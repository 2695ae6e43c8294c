"""What an event gives is checked again where it is taken in: an API believes no client, and no sender."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.triggers import Flow, Parameter, Subscription
from trainlet_functions.triggers import intake, mappings, registry, uris

PROJECT = "default"
CREATED = "com.example.created"
TEXT = {"type": "string"}


def subscribe(world: Any, places: tuple[str, ...] = (), window_s: float | None = None, **parameter: Any) -> None:
    flow = Flow() if window_s is None else Flow(window_s=window_s, max_batch=100)
    spec = Subscription(
        program=world.program(),
        filters=[{"exact": {"type": CREATED}}],
        places=list(places),
        params={"data": Parameter(**{"path": "$.data.uri", "json_schema": TEXT, **parameter})},
        flow=flow,
    )
    world.do(registry.put, PROJECT, "retrain", spec)


def send(world: Any, event_id: str, uri: Any) -> None:
    world.do(intake.take, PROJECT, [events.make(CREATED, "/test", event_id, {"uri": uri})], world.matcher)


def test_T8_a_value_of_another_type_is_skipped_with_what_is_wrong(world: Any) -> None:
    subscribe(world)
    send(world, "good", "a")
    send(world, "bad", {"not": "a text"})
    world.work()
    assert world.given() == ["a"]
    ((state, reason),) = world.matches("bad")
    assert state == "skipped" and "Parameter data: $.data.uri" in reason and "is not of type 'string'" in reason


def test_S1_a_bucket_that_is_not_named_starts_nothing(world: Any) -> None:
    subscribe(world, ("s3://digits-raw/images",))
    send(world, "good", "s3://digits-raw/images/1.png")
    send(world, "bad", "s3://secrets/1.png")
    world.work()
    assert world.given() == ["s3://digits-raw/images/1.png"]
    ((state, reason),) = world.matches("bad")
    assert state == "skipped" and "lies in none of s3://digits-raw/images" in reason


def test_the_lists_of_many_events_become_one_and_a_bad_event_costs_the_others_nothing(world: Any) -> None:
    subscribe(world, window_s=10, many=True)
    for event_id, uri in (("1", "a"), ("2", ["b", "c"]), ("3", 7), ("4", "d")):
        send(world, event_id, uri)
    world.wait(11)
    assert world.given() == [["a", "b", "c", "d"]]
    ((state, _),) = world.matches("3")
    assert state == "skipped"


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ({"path": "$.data["}, "is no path"),
        ({"json_schema": {"type": "text"}}, "is no JSON Schema"),
        ({"json_schema": {"$ref": "http://169.254.169.254/latest"}}, "refers to another document"),
        ({"json_schema": {"anyOf": [{"$ref": "other.json#/a"}]}}, "refers to another document"),
        ({"json_schema": {"enum": ["x" * 30_000]}}, "characters"),
        ({"default": 7, "has_default": True}, "the default gives what does not fit"),
    ],
)
def test_a_definition_that_no_decorator_would_make_is_refused_too(
    world: Any, parameter: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        subscribe(world, **parameter)
    with pytest.raises(UserError, match="is no place"):
        subscribe(world, ("digits-raw",))


names = st.text("ab", min_size=1, max_size=3)
parts = st.lists(
    st.one_of(names, st.sampled_from(["..", ".", "%2e%2e", "..%2f", "", "a\\..", "@", "?x=/"])), max_size=4
)


@given(st.sampled_from(["s3", "S3", "gs", "file"]), st.sampled_from([":", ":/", "://", ":///"]), names, parts)
def test_S1_whatever_lies_in_a_place_begins_with_it_and_never_climbs_out(
    scheme: str, slashes: str, bucket: str, path: list[str]
) -> None:
    """The property is told by another reading of the same text: split at slashes, unescaped as often as it takes."""
    uri = f"{scheme}{slashes}{'/'.join([bucket, *path])}"
    try:
        uris.check_value("x", uri, ["s3://a/b"])
    except UserError:
        return
    if ":/" not in uri:
        return  # no reader takes it for a place of a store
    assert uri.split("/")[:4] == ["s3:", "", "a", "b"]
    assert not any(part.replace("%2e", ".").replace("%2f", "") == ".." for part in uri.replace("\\", "/").split("/"))


@given(st.lists(st.one_of(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3)), min_size=1, max_size=5))
def test_joined_lists_hold_every_value_of_every_event_in_order(given_values: list[Any]) -> None:
    params = {"data": Parameter(path="$.data", many=True, json_schema=TEXT)}
    found = [mappings.values(params, (), events.make(CREATED, "/s", "1", value)) for value in given_values]
    flat = [one for value in given_values for one in (value if isinstance(value, list) else [value])]
    assert mappings.join(params, found) == {"data": flat}
