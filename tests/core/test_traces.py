"""W3C trace context: what is read, what is derived, and that it is the same everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlet.core import traces

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_task_of_a_traced_caller_is_in_the_callers_trace() -> None:
    span = traces.of_task("run", "run.train", {traces.LABEL: CALLER})
    assert span.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert span.span_id != "b7ad6b7169203331"
    assert str(traces.parse(str(span))) == str(span)


def test_tasks_of_one_run_share_a_trace_and_no_span() -> None:
    spans = [traces.of_task("run", key, {}) for key in ("a", "b")]
    spans += [traces.of_attempt("run", "a", {}, epoch) for epoch in (1, 2)]
    assert len({one.trace_id for one in spans}) == 1
    assert len({one.span_id for one in spans}) == 4
    assert traces.of_task("other", "a", {}).trace_id != spans[0].trace_id


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        CALLER.upper(),
        CALLER + "-more",
        CALLER.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "01" + CALLER[2:] + "-" + "x" * 600,
    ],
)
def test_what_is_no_traceparent_counts_for_nothing(text: str | None) -> None:
    assert traces.parse(text) is None
    assert traces.of_task("run", "a", {traces.LABEL: text or ""}) == traces.of_task("run", "a", {})


def test_a_later_version_may_say_more() -> None:
    assert str(traces.parse("01" + CALLER[2:] + "-more")) == CALLER


@given(st.text(), st.text(), st.integers(1, 2**31 - 1))
def test_whatever_a_run_is_called_its_trace_is_valid(run: str, key: str, epoch: int) -> None:
    text = str(traces.of_attempt(run, key, {}, epoch))
    assert traces.parse(text) is not None
    assert text == str(traces.of_attempt(run, key, {}, epoch))
