"""CloudEvents 1.0 in binary, structured and batch mode: what the official SDK writes is read as what it meant, or refused."""

from __future__ import annotations

import base64
import json
import string
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core import events
from trainlet.core.errors import UserError

PLAIN = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
texts = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]).filter(lambda one: not events._FORBIDDEN.search(one)),
    min_size=1,
    max_size=20,
)
names = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20).filter(
    lambda name: name not in ("data", "specversion", "id", "source", "type", "time", "subject", "datacontenttype",
                              "dataschema")
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict | list))  # the SDK takes a text for JSON that is written already


def sdk(attributes: dict[str, Any], data: Any) -> CloudEvent:
    """Make the event of the official SDK."""
    base = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0", "time": datetime(2026, 1, 2, 3, tzinfo=UTC)}
    return CloudEvent({**base, **attributes}, data)


@given(st.dictionaries(names, texts, max_size=4), texts, values)
def test_each_mode_says_what_was_meant(more: dict[str, str], subject: str, data: Any) -> None:
    attributes = {**more, "subject": subject, "datacontenttype": "application/json"}
    binary = to_binary_event(sdk(attributes, json.dumps(data).encode()))  # it writes what is no dict as Python does
    structured = to_structured_event(sdk(attributes, data))
    found = [
        events.from_http(binary.headers, binary.body),
        events.from_http(structured.headers, structured.body),
        *events.batch(b"[" + structured.body + b"]"),
    ]
    for event in found:
        assert {name: event.attributes[name] for name in more} == more and event.subject == subject
        assert (event.id, event.source, event.type, event.data, event.binary) == ("1", "/s", "t", data, False)
        assert datetime.fromisoformat(str(event.attributes["time"])) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert events.from_json(found[0].to_json()) == found[0]


@given(st.binary(min_size=1, max_size=50))
def test_bytes_come_as_bytes_in_each_mode(raw: bytes) -> None:
    given = sdk({"datacontenttype": "application/octet-stream"}, raw)
    binary, structured = to_binary_event(given), to_structured_event(given)
    one, two = events.from_http(binary.headers, binary.body), events.from_http(structured.headers, structured.body)
    assert (base64.b64decode(one.data) if one.binary else one.data.encode()) == raw
    assert two.binary and base64.b64decode(two.data) == raw
    assert events.from_json(two.to_json()) == two


@given(st.dictionaries(names, st.integers(-(2**31), 2**31 - 1) | st.booleans(), max_size=4))
def test_integers_and_booleans_keep_their_type_in_json(more: dict[str, int | bool]) -> None:
    event = events.from_http({"Content-Type": events.STRUCTURED}, json.dumps({**PLAIN, **more}).encode())
    assert {name: (type(event.attributes[name]), event.attributes[name]) for name in more} == {
        name: (type(value), value) for name, value in more.items()
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [("caf%C3%A9", "caf\u00e9"), ('"a \\"b\\" c"', 'a "b" c'), ("%25C3", "%C3"), ('"', '"'), ("100%", "100%")],
)
def test_a_header_is_unquoted_and_decoded_once(written: str, meant: str) -> None:
    headers = {f"CE-{name}": value for name, value in PLAIN.items()}
    assert events.from_http({**headers, "Ce-Subject": written}, b"").subject == meant


HEADERS = {f"ce-{name}": value for name, value in PLAIN.items()}
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"id": None}, "id is missing"),
    "an empty id": ({"id": ""}, "id is missing"),
    "an id that is a number": ({"id": 7}, "id is missing"),
    "no source": ({"source": None}, "source is missing"),
    "no type": ({"type": None}, "type is missing"),
    "another version": ({"specversion": "0.3"}, "specversion"),
    "a huge id": ({"id": "x" * 501}, "at most 500"),
    "a huge extension": ({"ext": "x" * 8001}, "at most 8000"),
    "very many extensions": ({f"e{number}": "x" for number in range(80)}, "at most 64"),
    "a name with a capital": ({"Ext": "x"}, "no attribute name"),
    "a name with a hyphen": ({"my-ext": "x"}, "no attribute name"),
    "a fraction": ({"ext": 1.5}, "a float"),
    "a large integer": ({"ext": 2**31}, "32 bits"),
    "an object": ({"ext": {}}, "a dict"),
    "a control character": ({"ext": "a\x07"}, "control character"),
    "a noncharacter": ({"ext": "a\uffff"}, "control character"),
    "no time": ({"time": "yesterday"}, "RFC 3339"),
    "a day that is none": ({"time": "2026-02-30T00:00:00Z"}, "RFC 3339"),
    "two kinds of data": ({"data": 1, "data_base64": "AA=="}, "both"),
    "no base64": ({"data_base64": "A"}, "no base64"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_refused_and_named_in_json(case: str) -> None:
    changes, said = ODD[case]
    form = {name: value for name, value in {**PLAIN, **changes}.items() if value is not None}
    with pytest.raises(UserError, match=said):
        events.from_http({"content-type": events.STRUCTURED}, json.dumps(form).encode())
    with pytest.raises(UserError, match=f"event 1 of the batch.*{said}"):
        events.batch(json.dumps([PLAIN, form]).encode())


@pytest.mark.parametrize(
    ("changes", "body", "said"),
    [
        ({"ce-id": None}, b"", "id is missing"),
        ({"ce-id": ""}, b"", "id is missing"),
        ({"ce-id": "%FF"}, b"", "ce-id is no percent-encoded UTF-8"),
        ({"ce-specversion": None}, b"", "specversion"),
        ({"ce-ext": "x" * 8001}, b"", "at most 8000"),
        ({"ce-ext": quote("a\x07")}, b"", "control character"),
        ({"ce-my-ext": "x"}, b"", "no attribute name"),
        ({"content-type": "application/json"}, b"{", "no valid JSON"),
        ({"content-type": "application/json"}, b"[NaN]", "not JSON"),
        ({"content-type": "application/json"}, b"[1e999]", "too large"),
        ({"content-type": "application/json"}, b"[" * 100_000, "no valid JSON"),
        ({"content-type": "application/json"}, b'"\\ud800"', "no valid JSON"),
    ],
)
def test_what_is_odd_is_refused_and_named_in_headers(changes: dict[str, Any], body: bytes, said: str) -> None:
    headers = {name: value for name, value in {**HEADERS, **changes}.items() if value is not None}
    with pytest.raises(UserError, match=said):
        events.from_http(headers, body)


def test_an_extension_that_is_null_is_one_that_is_not_there() -> None:
    assert events.from_json({**PLAIN, "ext": None, "data": None}) == events.from_json(PLAIN)
