"""Exit scopes, cancelling, and interrupts."""

from __future__ import annotations

import threading

import pytest
from runner_parts import Scripted, node, out

from trainlet.core import graphs
from trainlet.core.wire import ErrorInfo
from trainlet_pipelines.runner import Outcome, Runner
from trainlet_pipelines.values import PlainSpace

EXIT = graphs.Scope(id="x", kind="exit")
NOTIFY = node("notify", "x", status=graphs.RunStatus(), message=graphs.RunStatus(path=("error", "message")))


def test_an_exit_scope_runs_last_and_knows_the_outcome(walk):
    executor = Scripted()
    result = walk([EXIT, NOTIFY, node("a"), node("b", x=out("a"))], executor)
    assert executor.started == ["a", "b", "notify"] and result.state == "succeeded"
    inputs = executor.calls["notify"].inputs
    assert inputs == {"status": {"state": "succeeded", "error": None, "failed": []}, "message": None}


def test_an_exit_scope_runs_after_a_failure_and_knows_it(walk):
    executor = Scripted({"a": ValueError("broken\nsecond line")})
    result = walk([EXIT, NOTIFY, node("a"), node("b", x=out("a"))], executor)
    assert executor.started == ["a", "notify"] and result.failed == ("a",)
    told = executor.calls["notify"].inputs
    assert told["message"] == "broken"
    assert told["status"]["state"] == "failed" and told["status"]["failed"] == ["a"]
    assert told["status"]["error"] == ErrorInfo(kind="user", type="ValueError", message="broken")


def test_a_failure_in_an_exit_scope_fails_the_run(walk):
    result = walk([EXIT, NOTIFY, node("a")], Scripted({"notify": OSError("no mail")}), {"result": out("a")})
    assert result.state == "failed" and result.failed == ("notify",)


def test_an_exit_step_ordered_after_a_step_that_failed_runs_all_the_same(walk):
    executor = Scripted({"a": ValueError("broken")})
    walk([EXIT, node("tidy", "x", after=("a",)), node("a")], executor)
    assert executor.started == ["a", "tidy"]


def test_cancel_stops_what_runs_starts_nothing_more_and_runs_the_exit_scope():
    executor = Scripted(held={"a"})
    parts = (node("a"), node("b", x=out("a")), NOTIFY)
    graph = graphs.Graph(name="g", nodes=parts, scopes=(EXIT,))
    runner = Runner(graph, {}, PlainSpace(), executor)

    def stop() -> None:
        with executor.changed:
            assert executor.changed.wait_for(lambda: executor.started == ["a"], 10)
        runner.cancel("enough")

    thread = threading.Thread(target=stop)
    thread.start()
    result = runner.run()
    thread.join()
    assert result.state == "canceled" and executor.canceled == ["enough"]
    assert executor.started == ["a", "notify"]
    assert executor.calls["notify"].final and not executor.calls["a"].final
    assert executor.calls["notify"].inputs["status"]["state"] == "canceled"


def test_cancel_in_the_middle_of_a_bounded_loop_enters_no_more_items():
    executor = Scripted(held={"a.1"})
    loop = graphs.Scope(id="e", kind="each", items=graphs.Constant(value=[1, 2, 3]), max_parallel=1)
    runner = Runner(graphs.Graph(name="g", nodes=(node("a", "e"),), scopes=(loop,)), {}, PlainSpace(), executor)

    def stop() -> None:
        with executor.changed:
            assert executor.changed.wait_for(lambda: "a.1" in executor.started, 10)
        runner.cancel("enough")

    thread = threading.Thread(target=stop)
    thread.start()
    assert runner.run().state == "canceled"
    thread.join()
    assert executor.started == ["a.0", "a.1"]


def test_a_task_that_was_cancelled_alone_ends_the_run_as_cancelled(walk):
    result = walk([node("a"), node("b", x=out("a")), node("c")], executor := Scripted({"a": Outcome("canceled")}))
    assert result.state == "canceled" and executor.started == ["a", "c"]


def test_an_interrupt_runs_the_exit_scope_and_is_raised(walk):
    def interrupted(call):
        raise KeyboardInterrupt

    executor = Scripted({"a": interrupted})
    with pytest.raises(KeyboardInterrupt):
        walk([EXIT, node("tidy", "x", after=("a",)), node("a"), node("b", x=out("a"))], executor)
    assert executor.started == ["a", "tidy"] and executor.canceled == ["interrupted"]
