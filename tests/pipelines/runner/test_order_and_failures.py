"""What runs when, and what a failure stops."""

from __future__ import annotations

import threading

import pytest
from runner_parts import Scripted, node, out

from trainlet.core import graphs


def test_a_task_starts_after_what_it_reads_and_gets_its_value(walk):
    executor = Scripted({"a": 1, "b": lambda call: call.inputs["x"] + 1})
    result = walk([node("b", x=out("a")), node("a")], executor, {"result": out("b")})
    assert (result.state, result.outputs, executor.started) == ("succeeded", {"result": 2}, ["a", "b"])


def test_after_gives_order_without_data(walk):
    executor = Scripted()
    walk([node("late", after=("early",)), node("early")], executor)
    assert executor.started == ["early", "late"]


def test_independent_tasks_are_all_started_before_any_ends(walk):
    executor = Scripted(held={"a", "b", "c"})

    def let_go() -> None:
        with executor.changed:
            assert executor.changed.wait_for(lambda: len(executor.started) == 3, 10)
        for name in ("c", "a", "b"):
            executor.release(name)

    thread = threading.Thread(target=let_go)
    thread.start()
    result = walk([node("a"), node("b"), node("c")], executor)
    thread.join()
    assert result.state == "succeeded" and executor.most_at_once == 3


def test_a_failure_stops_what_depends_on_it_and_nothing_else(walk):
    executor = Scripted({"bad": ValueError("broken")})
    parts = [node("bad"), node("child", x=out("bad")), node("grandchild", after=("child",)), node("other")]
    result = walk([*parts, node("follows", x=out("other"))], executor)
    assert result.state == "failed" and result.failed == ("bad",)
    assert isinstance(result.error, ValueError)
    assert sorted(executor.started) == ["bad", "follows", "other"]


def test_all_failures_are_named_and_the_first_is_the_error(walk):
    executor = Scripted({"a": ValueError("first"), "b": KeyError("second")})
    result = walk([node("a"), node("b")], executor)
    assert result.failed == ("a", "b") and str(result.error) == "first"


def test_a_missing_part_of_a_result_fails_the_task_that_wants_it(walk):
    executor = Scripted({"a": {"loss": 1}})
    result = walk([node("a"), node("b", x=out("a", "los"))], executor)
    assert result.state == "failed" and result.failed == ("b",)
    assert "b(x=...)" in str(result.error) and "'los'" in str(result.error)


def test_parts_of_results_are_picked(walk):
    executor = Scripted({"a": {"rows": [1, {"deep": "yes"}]}})
    result = walk([node("a")], executor, {"result": out("a", "rows", 1, "deep")})
    assert result.outputs == {"result": "yes"}


def test_lists_and_dictionaries_of_results_are_built(walk):
    executor = Scripted({"a": 1, "b": 2})
    both = graphs.DictOf(items={"list": graphs.ListOf(items=(out("a"), out("b"))), "p": graphs.Parameter(name="p")})
    result = walk([node("a"), node("b")], executor, {"result": both}, {"p": "given"})
    assert result.outputs == {"result": {"list": [1, 2], "p": "given"}}


def test_a_step_that_changes_its_argument_does_not_change_the_next_call(walk):
    def spoil(call):
        call.inputs["x"].append(9)
        return len(call.inputs["x"])

    shared = graphs.Constant(value=[1])
    executor = Scripted({"a": spoil, "b": spoil})
    result = walk([node("a", x=shared), node("b", x=shared, after=("a",))], executor, {"result": out("b")})
    assert result.outputs == {"result": 2}


@pytest.mark.parametrize("size", [3000])
def test_a_long_chain_is_no_problem(walk, size):
    chain = [node("n0"), *(node(f"n{i}", after=(f"n{i - 1}",)) for i in range(1, size))]
    assert walk(chain, Scripted()).state == "succeeded"
