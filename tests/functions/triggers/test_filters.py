"""Filters mean what Eventing means by them, and what can never match is refused when it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet_functions.triggers import filters


def event(kind: str = "a.b", source: str = "/s", data: Any = None, **attributes: Any) -> events.Event:
    return events.make(kind, source, "1", data, **attributes)


@pytest.mark.parametrize(
    ("dialect", "passes"),
    [
        ({"exact": {"type": "a.b"}}, True),
        ({"exact": {"type": "a.b", "source": "/t"}}, False),
        ({"exact": {"subject": "x"}}, False),
        ({"exact": {"count": "3"}}, True),
        ({"exact": {"flag": "true"}}, True),
        ({"prefix": {"type": "a."}}, True),
        ({"prefix": {"type": "b"}}, False),
        ({"suffix": {"type": ".b", "source": "s"}}, True),
        ({"suffix": {"subject": "b"}}, False),
        ({"all": [{"exact": {"type": "a.b"}}, {"prefix": {"source": "/"}}]}, True),
        ({"any": [{"exact": {"type": "no"}}, {"prefix": {"source": "/"}}]}, True),
        ({"any": [{"exact": {"type": "no"}}]}, False),
        ({"not": {"exact": {"subject": "x"}}}, True),
        ({"not": {"not": {"exact": {"type": "a.b"}}}}, True),
        ({"cesql": "type LIKE 'a.%' AND count < 4"}, True),
        ({"cesql": "type LIKE 'a.%' OR subject = 'x'"}, True),
        ({"cesql": "subject = 'x' OR type LIKE 'a.%'"}, False),  # the missing attribute comes first: an error
        ({"not": {"cesql": "subject = 'x'"}}, True),
        ({"cesql": "flag"}, True),
        ({"cesql": "count"}, False),
    ],
)
def test_a_dialect_passes_what_eventing_passes(dialect: dict[str, Any], passes: bool) -> None:
    assert filters.compile([dialect]).matches(event(count=3, flag=True)) is passes


def test_all_dialects_of_the_list_must_hold() -> None:
    both = filters.compile([{"exact": {"type": "a.b"}}, {"exact": {"source": "/t"}}])
    assert not both.matches(event())
    assert both.matches(event(source="/t"))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "one dialect"),
        ({"exact": {}}, "must map attributes"),
        ({"exact": {"type": ""}}, "not empty"),
        ({"exact": {"Type": "x"}}, "no attribute"),
        ({"exact": {"data": "x"}}, "cannot look into data"),
        ({"exact": {"type": "a"}, "prefix": {"type": "a"}}, "one dialect"),
        ({"prefixes": {"type": "a"}}, "Did you mean 'prefix'"),
        ({"all": []}, "at least one"),
        ({"any": [{"exact": {"type": "a"}}, {"nott": 1}]}, r"filters\[0\]\.any\[1\]\.nott"),
        ({"not": [1]}, "one dialect"),
        ({"cesql": "subject LIKE 3"}, "at character 14"),
        ({"cesql": "LEN(subject) = 3"}, "no function LEN/1"),
        ({"cesql": "LENGTH(subject)"}, "type Integer"),
        ({"cesql": "1 -1 = 0"}, "write a space behind the sign"),
        ({"cesql": 3}, "must be an expression"),
        ({"data": {"size": 3}}, "no path"),
        ({"data": {"$.a[?@.b]": 3}}, r"without \[\?"),
        ({"data": {"$.size": {"greater": 3}}}, "no comparison 'greater'"),
        ({"data": {"$.size": {"gt": "3"}}}, "does not fit"),
    ],
)
def test_what_is_never_meant_is_refused_with_its_place(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        filters.compile([spec])


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    spec: dict[str, Any] = {"exact": {"type": "a"}}
    for _ in range(500):
        spec = {"not": spec}
    with pytest.raises(UserError, match="deep"):
        filters.compile([spec])
    with pytest.raises(UserError, match="deep"):
        filters.compile([{"cesql": "(" * 500 + "TRUE" + ")" * 500}])


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ({"$.size": {"gt": 9, "le": 10}}, True),
        ({"$.size": {"gt": 10}}, False),
        ({"/labels/kind": "drift"}, True),
        ({"$.labels.kind": ["drift", "skew"]}, True),
        ({"$.labels.kind": {"prefix": "dr", "suffix": "ft", "ne": "x"}}, True),
        ({"$.labels.kind": {"gt": 1}}, False),
        ({"$.nothing": {"exists": False}}, True),
        ({"$.nothing": {"ne": 1}}, False),
        ({"$.yes": True}, True),
        ({"$.yes": 1}, False),
    ],
)
def test_conditions_look_at_the_data(condition: dict[str, Any], passes: bool) -> None:
    data = {"size": 10, "labels": {"kind": "drift"}, "yes": True}
    assert filters.compile([{"data": condition}]).matches(event(data=data)) is passes


@pytest.mark.parametrize(
    ("specs", "keys"),
    [
        ([{"exact": {"type": "a", "source": "/s"}}], [("a", "/s")]),
        ([{"exact": {"type": "a"}}], [("a", None)]),
        ([{"cesql": "type = 'a' AND subject = 'x'"}, {"exact": {"source": "/s"}}], [("a", "/s")]),
        ([{"cesql": "type IN ('a', 'b')"}], [("a", None), ("b", None)]),
        ([{"any": [{"exact": {"type": "a"}}, {"cesql": "'b' = type"}]}], [("a", None), ("b", None)]),
        ([{"any": [{"exact": {"type": "a"}}, {"prefix": {"type": "b"}}]}], None),
        ([{"not": {"exact": {"type": "a"}}}], None),
        ([{"cesql": "type = 'a' OR subject = 'x'"}], None),
        ([{"exact": {"type": "a"}}, {"exact": {"type": "b"}}], []),
    ],
)
def test_the_index_is_what_a_filter_says_exactly(specs: list[dict[str, Any]], keys: list[Any] | None) -> None:
    assert filters.compile(specs).index_keys() == keys


def test_a_broker_is_given_all_but_the_data_and_never_keeps_back_what_would_match() -> None:
    data = {"data": {"$.a": 1}}
    plain = {"exact": {"type": "a"}}
    assert filters.compile([plain, data]).to_knative() == [plain]
    assert filters.compile([{"all": [plain, data]}]).to_knative() == [{"all": [plain]}]
    assert filters.compile([{"any": [plain, data]}]).to_knative() == []
    assert filters.compile([{"not": {"all": [plain, data]}}]).to_knative() == []
    assert filters.compile([{"not": {"any": [plain, data]}}]).to_knative() == [{"not": {"any": [plain]}}]


_TEXT = st.sampled_from(["a", "ab", "b"])
_NAME = st.sampled_from(["type", "source"])
_LEAF = st.one_of(
    st.builds(lambda d, a, v: {d: {a: v}}, st.sampled_from(["exact", "prefix", "suffix"]), _NAME, _TEXT),
    st.builds(lambda a, v: {"cesql": f"{a} = '{v}'"}, _NAME, _TEXT),
    st.builds(lambda v: {"data": {"$.v": v}}, _TEXT),
)
_SPEC = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.builds(lambda one: {"not": one}, inner),
        st.builds(lambda d, many: {d: many}, st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@given(_SPEC, _TEXT, _TEXT, _TEXT)
def test_index_and_broker_never_lose_an_event_that_matches(
    spec: dict[str, Any], kind: str, source: str, v: str
) -> None:
    one = filters.compile([spec])
    found = event(kind, source, {"v": v})
    if not one.matches(found):
        return
    keys = one.index_keys()
    assert keys is None or {(kind, source), (kind, None), (None, source)} & set(keys)
    passed_on = one.to_knative()
    assert not passed_on or filters.compile(passed_on).matches(found)


@given(st.text("ab%_\\", max_size=8), st.text("ab%_\\", max_size=12))
def test_like_is_what_trying_everything_says(pattern: str, text: str) -> None:
    from trainlet_functions.triggers.cesql.nodes import Like, Literal

    def fits(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "\\" and p[1:2] in ("%", "_") and p[1:2]:
            return t[:1] == p[1] and fits(p[2:], t[1:])
        if p[0] == "%":
            return any(fits(p[1:], t[i:]) for i in range(len(t) + 1))
        return bool(t) and (p[0] in ("_", t[0])) and fits(p[1:], t[1:])

    assert Like(Literal(""), pattern).fits(text) is fits(pattern, text)
