"""From creation to the end: what each party sees, and what is written down on the way."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from trainlet.core import errors, lifecycle, wire
from trainlet_functions.state import attempts, runs, schema, tasks
from trainlet_functions.state.problems import FencedAttempt, Taken


def test_a_task_that_fits_is_dispatched_in_the_same_transaction(world):
    view = world.create("run.step")
    assert (view.state, view.epoch) == ("dispatched", 1)


def test_a_task_ends_with_the_output_of_its_attempt(world):
    world.running("run.step")
    world.beat("run.step", started=True, progress={"done": 1}, metrics={"loss": 0.5})
    view = world.finish("run.step", output={"answer": 42})
    assert (view.state, view.output, view.metrics) == ("succeeded", {"answer": 42}, {"loss": 0.5})
    assert [one.state for one in view.attempts] == ["succeeded"]
    assert world.run().state == "succeeded"


def test_every_state_is_in_the_timeline_and_in_the_outbox(world):
    world.running("run.step")
    world.finish("run.step")
    with world.database.read() as tx:
        line = tasks.timeline(tx, "default", "run.step")
        kinds = [row.type for row in tx.all(sa.select(schema.outbox).order_by(schema.outbox.c.id))]
    assert [one.state for one in line] == ["queued", "dispatched", "running", "succeeded"]
    assert all(one.reason and one.actor and one.at for one in line)
    assert [kind for kind in kinds if kind.startswith(lifecycle.TASK)] == [
        lifecycle.TASK + state for state in ("queued", "dispatched", "running", "succeeded")
    ]


def test_the_version_of_a_task_grows_with_every_change_in_its_run(world):
    versions = [world.create("run.a").version, world.create("run.b").version]
    versions.append(world.claim("run.a", 1).task.version)
    versions.append(world.finish("run.a").version)
    assert versions == sorted(set(versions))


def test_changes_after_a_cursor_are_the_tasks_that_changed_since(world):
    world.create("run.a")
    world.create("run.b")
    with world.database.read() as tx:
        first = runs.changes(tx, "default", "run", 0)
    world.claim("run.b", 1)
    with world.database.read() as tx:
        second = runs.changes(tx, "default", "run", first.cursor)
    assert [task.key for task in first.tasks] == ["run.a", "run.b"]
    assert [(task.key, task.state) for task in second.tasks] == [("run.b", "running")]
    assert second.cursor > first.cursor


def test_a_cursor_from_before_a_restore_counts_as_none(world):
    world.create("run.a")
    with world.database.read() as tx:
        ahead = runs.changes(tx, "default", "run", 0).cursor + 1000
        found = runs.changes(tx, "default", "run", ahead)
    assert [task.key for task in found.tasks] == ["run.a"]
    assert found.cursor < ahead


def test_a_second_creation_with_another_body_says_what_differs(world):
    world.create("run.step", args={"lr": 0.1})
    with pytest.raises(errors.ConflictError, match="other args"):
        world.create("run.step", args={"lr": 0.2})


def test_a_task_of_a_function_that_nobody_registered_is_refused(world):
    body = world.body().model_copy(update={"digest": "f" * 64})
    with pytest.raises(errors.NotFoundError, match="It has: step"):
        world.do(tasks.create, "default", "run.step", body)


def test_a_task_of_a_cancelled_run_is_refused(world):
    world.create("run.a")
    world.do(runs.cancel, "default", "run", "enough")
    with pytest.raises(errors.ConflictError, match="resume it"):
        world.create("run.b")


def test_a_worker_of_another_function_cannot_claim(world):
    world.deploy("other")
    world.create("run.step")
    with pytest.raises(errors.AccessError):
        world.claim("run.step", 1, function="other")


def test_a_worker_of_another_project_sees_no_task(world):
    world.create("run.step")
    with pytest.raises(Taken):
        world.claim("run.step", 1, project="foreign")


def test_a_second_worker_finds_the_task_taken(world):
    world.running("run.step")
    with pytest.raises(Taken, match="taken by w1"):
        world.claim("run.step", 1, worker="w2")


def test_an_idle_worker_gets_the_oldest_dispatched_task(world):
    for index in range(3):
        world.create(f"run.step.{index}")
        world.clock.advance(1)
    assert [world.claim_next(f"w{n}").task.key for n in range(3)] == [f"run.step.{n}" for n in range(3)]
    assert world.claim_next("w9") is None


def test_a_worker_whose_process_started_again_gives_up_what_the_earlier_one_had(world):
    world.running("run.step")
    world.create("run.later")
    view = world.create("run.held")
    world.claim("run.held", view.epoch, worker="w2", nonce="first.1")
    assert world.claim_next("w2", "second.1").task.key in ("run.later", "run.held")
    (attempt,) = [one for one in world.task("run.held").attempts if one.epoch == 1]
    assert (attempt.state, attempt.reason) == ("lost", "worker w2 was started again")
    assert world.task("run.step").state == "running", "another worker's is not touched"


def test_only_the_token_of_the_attempt_is_good_for_it(world):
    world.running("run.step")
    world.tokens["run.step", 1] += "x"
    with pytest.raises(errors.AccessError):
        world.beat("run.step")


def test_a_failed_attempt_is_retried_after_a_delay_that_grows(world):
    world.deploy("flaky", retries={"times": 2, "delay_s": 10.0})
    world.running("run.flaky", function="flaky")
    error = {"kind": "user", "message": "boom"}
    view = world.finish("run.flaky", 1, "failed", error=error)
    assert view.state == "queued" and "retry 1 of 2 in 10 s" in view.reason
    world.wait(9)
    assert world.task("run.flaky").state == "queued"
    world.wait(3)
    assert world.task("run.flaky").epoch == 2
    world.claim("run.flaky", 2, function="flaky")
    world.finish("run.flaky", 2, "failed", error=error)
    world.wait(25)
    world.claim("run.flaky", 3, function="flaky")
    view = world.finish("run.flaky", 3, "failed", error=error)
    assert (view.state, view.error.message) == ("failed", "boom")
    assert world.run().state == "failed"


def test_preemption_costs_no_retry(world):
    world.running("run.step")
    for epoch in range(1, 20):
        note = {"step": epoch, "epoch": epoch}
        view = world.finish("run.step", epoch, "preempted", reason="drained", checkpoints=[note])
        assert (view.state, view.epoch) == ("dispatched", epoch + 1)
        world.claim("run.step", epoch + 1)
    assert world.finish("run.step", 20).state == "succeeded"


def test_a_task_that_is_always_preempted_before_it_gets_anywhere_fails_and_says_so(world):
    world.running("run.step")
    for epoch in range(1, attempts.MAX_LOSSES):
        world.finish("run.step", epoch, "preempted", reason="spot capacity was reclaimed")
        world.wait(40)
        world.claim("run.step", epoch + 1)
    view = world.finish("run.step", attempts.MAX_LOSSES, "preempted", reason="spot capacity was reclaimed")
    assert (view.state, view.error.kind) == ("failed", "lost")
    assert "spot capacity was reclaimed" in view.error.message and "checkpoints" in view.error.hint


def test_a_run_with_a_graph_ends_when_its_dispatcher_says_so(world):
    body = wire.RunCreate(pipeline="p", graph={"nodes": []})
    world.do(runs.create, "default", "run", body)
    world.running("run.step")
    world.finish("run.step")
    assert world.run().state == "running"
    done = wire.RunFinish(state="succeeded", outputs={"x": 1})
    assert world.do(runs.finish, "default", "run", done).outputs == {"x": 1}
    assert world.do(runs.finish, "default", "run", wire.RunFinish(state="failed")).state == "succeeded"


def test_a_run_id_with_another_body_says_what_differs(world):
    world.do(runs.create, "default", "run", wire.RunCreate(pipeline="p", params={"lr": 1}))
    with pytest.raises(errors.ConflictError, match="other params"):
        world.do(runs.create, "default", "run", wire.RunCreate(pipeline="p", params={"lr": 2}))


def test_runs_are_listed_newest_first_in_pages(world):
    for index in range(5):
        world.do(runs.create, "default", f"run-{index}", wire.RunCreate(pipeline="p"))
        world.clock.advance(index % 2)  # some at the same moment
    seen, cursor = [], None
    while True:
        page = world.do(runs.list_, "default", cursor, 2)
        seen += [item["id"] for item in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert sorted(seen) == [f"run-{index}" for index in range(5)] and len(seen) == 5
    assert seen[0] == "run-4"


def test_what_no_database_can_store_is_refused_or_made_storable(world):
    with pytest.raises(errors.UserError, match="not JSON"):
        world.create("run.nan", args={"x": float("nan")})
    world.create("run.odd", args={"x": "nul \0 and half \ud800"})
    view = world.do(tasks.cancel, "default", "run.odd", "nul \0 and half \ud800")
    assert view.state == "canceled" and view.reason.startswith("nul")


def test_usage_of_another_attempt_is_not_taken_in(world):
    world.running("run.a")
    world.running("run.b")
    assert attempts._own(_ref(world, "run.a"), [_event("run.b"), _event("run.a")]) == [_event("run.a")]


def _event(task: str) -> wire.LeaseEvent:
    return wire.LeaseEvent(
        id=f"{task}.1.0:0", kind="open", lease=f"{task}.1.0", seq=0, task=task, epoch=1, run_id="run", function="step",
        device=wire.Device(uuid="g", sku="A100-80GB"), anchor_ns=0, elapsed_ns=0,
    )  # fmt: skip


def _ref(world, key: str) -> attempts.AttemptRef:
    with world.database.read() as tx:
        return attempts.authenticate(tx, key, 1, world.tokens[key, 1])


def test_a_finish_without_a_live_attempt_is_fenced(world):
    world.running("run.step")
    world.do(attempts.lost, "run.step", 1, "gone")
    with pytest.raises(FencedAttempt):
        world.finish("run.step", 1)
