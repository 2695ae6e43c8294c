"""`when` and `each`: entered or not, repeated, bounded, nested."""

from __future__ import annotations

import threading

import pytest
from runner_parts import Scripted, node, out

from trainlet.core import graphs


def when(scope_id: str, operator: str, *operands: object, parent: str = "root") -> graphs.Scope:
    given = tuple(one if isinstance(one, graphs.Value) else graphs.Constant(value=one) for one in operands)
    return graphs.Scope(
        id=scope_id, kind="when", parent=parent, condition=graphs.Condition(operator=operator, operands=given)
    )


def each(scope_id: str, items: object, *, parent: str = "root", max_parallel: int | None = None) -> graphs.Scope:
    expression = items if isinstance(items, graphs.Value) else graphs.Constant(value=items)
    return graphs.Scope(id=scope_id, kind="each", parent=parent, items=expression, max_parallel=max_parallel)


@pytest.mark.parametrize(
    ("operator", "operands", "holds"),
    [
        ("==", (1, 1), True), ("!=", (1, 1), False), ("<", (1, 2), True), ("<=", (2, 2), True), (">", (1, 2), False),
        (">=", (2, 3), False), ("in", ("a", ["a"]), True), ("not in", ("a", ["a"]), False), ("truthy", ([],), False),
        ("truthy", ([0],), True), ("not", (0,), True), ("and", (1, 0), False), ("or", (0, 1), True),
    ],
)  # fmt: skip
def test_a_block_runs_only_if_its_condition_holds(walk, operator, operands, holds):
    executor = Scripted()
    result = walk([when("w", operator, *operands), node("a", "w")], executor)
    assert result.state == "succeeded" and executor.started == (["a"] if holds else [])


def test_what_reads_a_skipped_result_is_skipped_and_what_only_comes_after_runs(walk):
    executor = Scripted()
    parts = [
        when("w", "truthy", False), node("inside", "w"),
        node("reader", x=out("inside")), node("second", x=out("reader")), node("later", after=("inside",)),
    ]  # fmt: skip
    result = walk(parts, executor, {"result": out("inside")})
    assert executor.started == ["later"]
    assert result.state == "succeeded" and result.outputs == {"result": None}


def test_a_result_from_inside_a_block_that_ran_can_be_read_outside(walk):
    executor = Scripted({"inside": 7, "reader": lambda call: call.inputs["x"] + 1})
    parts = [when("w", "truthy", True), when("v", "truthy", True, parent="w"), node("inside", "v")]
    result = walk([*parts, node("reader", x=out("inside"))], executor, {"a": out("inside"), "b": out("reader")})
    assert result.outputs == {"a": 7, "b": 8}


def test_values_that_cannot_be_compared_fail_the_block_with_both_values(walk):
    result = walk([when("w", "<", 1, "a"), node("x", "w"), node("other")], executor := Scripted())
    assert result.failed == ("w",) and "1 < 'a'" in str(result.error)
    assert executor.started == ["other"]


def test_each_runs_per_item_and_collects_in_the_order_of_the_items(walk):
    executor = Scripted({"score": lambda call: call.inputs["item"] * 10}, held={"score.0"})

    def let_go() -> None:
        with executor.changed:
            assert executor.changed.wait_for(lambda: len(executor.started) == 3, 10)
        executor.release("score.0")

    thread = threading.Thread(target=let_go)
    thread.start()
    parts = [each("e", [1, 2, 3]), node("score", "e", item=graphs.Item(scope="e"))]
    result = walk(parts, executor, {"result": graphs.Collected(scope="e", value=out("score"))})
    thread.join()
    assert result.outputs == {"result": [10, 20, 30]}


def test_max_parallel_bounds_how_many_items_run_at_once_and_all_run(walk):
    executor = Scripted()
    result = walk([each("e", list(range(20)), max_parallel=3), node("a", "e"), node("b", "e", x=out("a"))], executor)
    assert result.state == "succeeded" and len(executor.started) == 40 and executor.most_at_once == 3


def test_each_over_nothing_gives_an_empty_list(walk):
    parts = [each("e", []), node("a", "e"), node("total", xs=graphs.Collected(scope="e", value=out("a")))]
    executor = Scripted({"total": lambda call: call.inputs["xs"]})
    assert walk(parts, executor, {"result": out("total")}).outputs == {"result": []}


def test_each_in_each_sees_both_items_and_numbers_its_tasks(walk):
    executor = Scripted({"a": lambda call: [call.inputs["o"], call.inputs["i"]]})
    inner = graphs.Collected(scope="inner", value=out("a"))
    parts = [
        each("outer", [1, 2]),
        each("inner", ["x", "y"], parent="outer"),
        node("a", "inner", o=graphs.Item(scope="outer"), i=graphs.Item(scope="inner")),
    ]
    result = walk(parts, executor, {"result": graphs.Collected(scope="outer", value=inner)})
    assert result.outputs == {"result": [[[1, "x"], [1, "y"]], [[2, "x"], [2, "y"]]]}
    assert executor.started == ["a.0.0", "a.0.1", "a.1.0", "a.1.1"]


def test_one_failing_item_does_not_stop_the_others_and_blocks_who_collects(walk):
    def score(call):
        return ValueError("odd") if call.inputs["item"] == 2 else call.inputs["item"]

    executor = Scripted({"score": score})
    parts = [each("e", [1, 2, 3]), node("score", "e", item=graphs.Item(scope="e"))]
    parts.append(node("total", xs=graphs.Collected(scope="e", value=out("score"))))
    result = walk(parts, executor)
    assert executor.started == ["score.0", "score.1", "score.2"] and result.failed == ("score.1",)


def test_a_block_inside_each_is_decided_per_item(walk):
    executor = Scripted({"big": lambda call: call.inputs["item"]})
    item = graphs.Item(scope="e")
    parts = [each("e", [1, 5, 9]), when("w", ">", item, 4, parent="e"), node("big", "w", item=item)]
    result = walk(parts, executor, {"result": graphs.Collected(scope="e", value=out("big"))})
    assert executor.started == ["big.1", "big.2"] and result.outputs == {"result": [None, 5, 9]}


def test_what_an_each_hands_out_from_outside_is_waited_for(walk):
    executor = Scripted({"outer": 4})
    parts = [each("e", [1, 2]), node("a", "e"), node("outer", x=out("slow")), node("slow")]
    parts.append(node("total", xs=graphs.Collected(scope="e", value=out("outer"))))
    walk(parts, executor)
    assert executor.calls["total"].inputs == {"xs": [4, 4]}


def test_a_loop_over_what_is_no_list_says_so(walk):
    result = walk([each("e", "text"), node("a", "e")], Scripted())
    assert result.failed == ("e",) and "needs a list" in str(result.error)


def test_thousands_of_items_cost_no_more_per_item_than_few(walk):
    executor = Scripted()
    result = walk([each("e", list(range(5000)), max_parallel=8), node("a", "e")], executor)
    assert result.state == "succeeded" and len(executor.started) == 5000
