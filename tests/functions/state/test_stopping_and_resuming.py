"""Stops of every kind, what becomes of a worker that was told, and how a run goes on afterwards."""

from __future__ import annotations

import pytest

from trainlet.core import errors, wire
from trainlet_functions.state import attempts, runs, tasks


def cancel(world, key: str = "run.step") -> wire.TaskView:
    return world.do(tasks.cancel, "default", key, "enough")


def test_a_task_that_waits_is_cancelled_at_once(world):
    world.create("run.step")
    view = cancel(world)
    assert (view.state, view.reason, view.error.kind) == ("canceled", "enough", "canceled")


def test_a_task_that_runs_is_asked_to_stop_and_ends_as_cancelled(world):
    world.running("run.step")
    assert cancel(world).state == "running"
    assert world.beat("run.step").model_dump(include={"directive", "code", "reason"}) == {
        "directive": "stop", "code": "canceled", "reason": "enough",
    }  # fmt: skip
    view = world.finish("run.step", outcome="preempted", checkpoints=[{"step": 3, "epoch": 1}])
    assert (view.state, [note.step for note in view.checkpoints]) == ("canceled", [3])


def test_a_task_that_finishes_before_it_hears_of_the_stop_has_succeeded(world):
    world.running("run.step")
    cancel(world)
    assert world.finish("run.step", output=1).state == "succeeded"


def test_cancelling_a_finished_task_changes_nothing(world):
    world.running("run.step")
    before = world.finish("run.step")
    assert cancel(world).model_dump() == before.model_dump()


def test_a_timeout_fails_the_attempt_and_says_what_to_do(world):
    world.deploy("slow", timeout_s=30)
    world.running("run.slow", "slow")
    for _ in range(4):
        world.wait(9)
        reply = world.beat("run.slow")
    assert reply.code == "timeout"
    view = world.finish("run.slow", outcome="canceled")
    assert (view.state, view.error.kind) == ("failed", "timeout")
    assert "timeout=30 s" in view.error.message and "Raise timeout=" in view.error.hint


def test_a_timeout_of_a_worker_that_hangs_is_a_timeout_too_and_may_be_retried(world):
    world.deploy("slow", timeout_s=10, grace_s=1, retries={"times": 1, "delay_s": 0})
    world.running("run.slow", "slow")
    for _ in range(4):
        world.wait(8)
        if world.task("run.slow").state == "running":
            world.beat("run.slow")
    view = world.task("run.slow")
    assert (view.state, view.epoch, view.attempts[0].state) == ("dispatched", 2, "failed")
    assert view.attempts[0].error.kind == "timeout"


def test_a_cancel_beats_a_timeout_that_would_be_retried(world):
    world.deploy("slow", timeout_s=5, retries={"times": 3, "delay_s": 0})
    world.running("run.slow", "slow")
    world.wait(7)
    assert world.beat("run.slow").code == "timeout"
    cancel(world, "run.slow")
    assert world.finish("run.slow", outcome="failed").state == "canceled"


def test_a_resumed_run_keeps_what_succeeded_and_goes_on_with_the_rest(world):
    world.running("run.a")
    world.finish("run.a", output=1)
    world.running("run.b")
    world.beat("run.b", checkpoints=[{"step": 7, "epoch": 1}])
    world.finish("run.b", 1, "failed", error={"kind": "user", "message": "boom"})
    assert world.run().state == "failed"
    view = world.do(runs.resume, "default", "run", wire.Resume())
    assert view.state == "running"
    assert (world.task("run.a").state, world.task("run.b").state) == ("succeeded", "dispatched")
    reply = world.claim("run.b", 2)
    assert reply.task.checkpoints[0].step == 7 and reply.task.error is None
    world.finish("run.b", 2)
    assert world.run().state == "succeeded"


def test_a_run_that_succeeded_is_not_opened_again(world):
    world.running("run.a")
    world.finish("run.a")
    assert world.do(runs.resume, "default", "run", wire.Resume()).state == "succeeded"


def test_a_worker_that_was_told_to_stop_before_the_resume_hands_the_task_back(world):
    world.running("run.step")
    world.do(runs.cancel, "default", "run", "enough")
    assert world.beat("run.step").directive == "stop"
    world.do(runs.resume, "default", "run", wire.Resume())
    view = world.finish("run.step", outcome="canceled")
    assert (view.state, view.epoch) == ("dispatched", 2)


def test_code_that_cancels_itself_is_not_started_again(world):
    world.running("run.step")
    assert world.finish("run.step", outcome="canceled", reason="early stop").state == "canceled"


def test_a_dispatcher_that_comes_back_takes_the_stop_back(world):
    world.running("run.step", dispatcher="notebook")
    for _ in range(8):
        world.wait(9)
        reply = world.beat("run.step")
    assert reply.code == "dispatcher_lost"
    world.create("run.step", dispatcher="kernel-2")
    assert world.beat("run.step").directive == "continue"


def test_a_new_dispatcher_of_a_run_takes_over_its_tasks(world):
    body = wire.RunCreate(pipeline="p", graph={}, dispatcher=wire.DispatcherLease(id="old"))
    world.do(runs.create, "default", "run", body)
    world.running("run.step", dispatcher="old")
    taken = body.model_copy(update={"dispatcher": wire.DispatcherLease(id="new", lease_s=3600)})
    assert world.do(runs.create, "default", "run", taken)[1] is False
    for _ in range(10):
        world.wait(9)
        assert world.beat("run.step").directive == "continue"


def test_a_lost_dispatcher_ends_its_run_in_words(world):
    body = wire.RunCreate(pipeline="p", graph={}, dispatcher=wire.DispatcherLease(id="gone", lease_s=10))
    world.do(runs.create, "default", "run", body)
    world.wait(12)
    assert (world.run().state, "nobody waits" in world.run().reason) == ("canceled", True)


def test_no_project_sees_or_stops_what_another_owns(world):
    world.running("run.step")
    for attack in (
        lambda: world.do(tasks.get, "foreign", "run.step"),
        lambda: world.do(tasks.cancel, "foreign", "run.step", "mine now"),
        lambda: world.do(tasks.timeline, "foreign", "run.step"),
        lambda: world.do(runs.get, "foreign", "run"),
        lambda: world.do(runs.cancel, "foreign", "run", "mine now"),
        lambda: world.do(runs.resume, "foreign", "run", wire.Resume()),
        lambda: world.do(runs.changes, "foreign", "run", 0),
    ):
        with pytest.raises(errors.NotFoundError):
            attack()
    with pytest.raises(errors.ConflictError) as caught:
        world.do(tasks.create, "foreign", "run.step", world.body(args={"guess": 1}))
    assert "args" not in str(caught.value)
    assert world.do(attempts.worker_gone, "w1", "not yours", project="foreign") == []
    assert world.beat("run.step").directive == "continue"


def test_one_task_is_resumed_and_the_rest_of_its_run_stays(world):
    for key in ("run.a", "run.b"):
        world.running(key)
        world.finish(key, outcome="failed", error={"kind": "user", "message": "boom"})
    assert world.run().state == "failed"
    view = world.do(tasks.resume, "default", "run.a", wire.Resume(dispatcher={"id": "pod", "lease_s": 30}))
    assert (view.state, view.error) == ("dispatched", None)
    assert (world.task("run.b").state, world.run().state) == ("failed", "running")
    world.wait(31)
    assert world.task("run.a").state == "canceled", "the new dispatcher's lease decides"


def test_a_task_that_succeeded_is_not_resumed(world):
    world.running("run.a")
    before = world.finish("run.a", output=1)
    assert world.do(tasks.resume, "default", "run.a", wire.Resume()).model_dump() == before.model_dump()


def test_a_run_of_kfp_whose_lost_task_was_stopped_still_takes_new_tasks(world):
    world.create("run.a")
    cancel(world, "run.a")
    assert world.run().state == "canceled"
    world.create("run.b")
    assert world.run().state == "running"
