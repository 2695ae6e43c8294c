"""What must always hold: the invariants of docs/architecture.md that the state room keeps."""

from __future__ import annotations

import random
import threading

import pytest
import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import attempts, dispatchers, logs, outbox, runs, schema, supervisor, tasks
from trainlet_functions.state.problems import FencedAttempt, Taken

A100 = (("A100-80GB", 1),)


def usage(key: str, epoch: int, seq: int, seconds: float, kind: str = "heartbeat") -> list[dict]:
    lease = f"{key}.{epoch}.0"
    device = {"uuid": "GPU-0", "sku": "A100-80GB"}
    return [
        {
            "id": f"{lease}:{seq}", "kind": kind, "lease": lease, "seq": seq, "task": key, "epoch": epoch, "run_id": "run",
            "function": "train", "device": device, "anchor_ns": 1_767_225_600_000_000_000, "elapsed_ns": round(seconds * 1e9),
        }
    ]  # fmt: skip


def test_T1_of_many_workers_that_claim_at_once_exactly_one_wins(world):
    world.create("run.step")
    won, start = [], threading.Barrier(8)

    def race(index: int) -> None:
        start.wait()
        try:
            world.claim("run.step", 1, worker=f"w{index}")
            won.append(index)
        except Taken:
            pass

    threads = [threading.Thread(target=race, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert [one.worker for one in world.task("run.step").attempts] == [f"w{won[0]}"]


def test_T1_of_many_dispatchers_that_create_at_once_all_get_the_same_task(world):
    made, start = [], threading.Barrier(8)

    def race() -> None:
        start.wait()
        with world.database.write() as tx:
            made.append(tasks.create(tx, "default", "run.step", world.body())[1])

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_T2_after_a_newer_claim_nothing_of_the_older_attempt_is_taken(world):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("train", gpus=A100)
    world.running("run.train", "train")
    world.beat("run.train", usage=usage("run.train", 1, 0, 2))
    world.do(attempts.lost, "run.train", 1, "worker gone")
    world.claim("run.train", 2, worker="w2", function="train")
    with pytest.raises(FencedAttempt):
        world.beat("run.train", 1, metrics={"loss": 9.0}, usage=usage("run.train", 1, 1, 500))
    with pytest.raises(FencedAttempt):
        world.finish("run.train", 1, output="stale", usage=usage("run.train", 1, 2, 500, "close"))
    with pytest.raises(FencedAttempt), world.database.write() as tx:
        stale = attempts.authenticate(tx, "run.train", 1, world.tokens["run.train", 1])
        logs.append(tx, stale, wire.LogsRequest(offset=0, lines=[(0, "stdout", "stale")]))
    view = world.finish("run.train", 2, output="fresh", worker="w2")
    with world.database.read() as tx:
        assert logs.read(tx, "run") == []
        assert [row.heartbeat_ns for row in tx.all(sa.select(leases))] == [2_000_000_000]
    assert (view.output, view.metrics, view.epoch) == ("fresh", {}, 2)


def test_T2_an_event_of_an_older_epoch_wakes_nobody(world):
    world.running("run.step")
    world.do(attempts.lost, "run.step", 1, "gone")
    with pytest.raises(Taken):
        world.claim("run.step", 1)


def test_T3_a_worker_that_is_silent_for_a_lease_time_loses_the_task(world):
    world.running("run.step")
    world.wait(14)
    world.beat("run.step")
    world.wait(14)
    assert world.task("run.step").epoch == 1
    world.wait(3)
    view = world.task("run.step")
    assert (view.state, view.epoch, view.attempts[0].state) == ("dispatched", 2, "lost")


def test_T3_a_task_that_loses_every_worker_fails_in_the_end_and_says_why(world):
    world.running("run.step")
    for epoch in range(1, attempts.MAX_LOSSES + 1):
        world.do(attempts.worker_gone, "w1", "killed by signal 9")
        world.wait(40)
        if epoch < attempts.MAX_LOSSES:
            world.claim("run.step", epoch + 1)
    view = world.task("run.step")
    assert (view.state, view.error.kind) == ("failed", "lost")
    assert "killed by signal 9" in view.error.message and view.error.hint


def test_T3_a_task_that_makes_progress_survives_any_number_of_losses(world):
    world.running("run.step")
    for epoch in range(1, 3 * attempts.MAX_LOSSES):
        world.beat("run.step", epoch, checkpoints=[{"step": epoch, "epoch": epoch}])
        world.do(attempts.lost, "run.step", epoch, "gone")
        assert world.task("run.step").epoch == epoch + 1
        world.claim("run.step", epoch + 1)
    assert world.finish("run.step", 3 * attempts.MAX_LOSSES).state == "succeeded"


def test_T3_a_task_for_which_no_worker_ever_comes_fails_and_frees_its_device(world):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("train", gpus=A100)
    world.create("run.train", "train")
    world.clock.advance(3601)
    world.supervisor.tick()
    view = world.task("run.train")
    assert (view.state, view.error.type) == ("failed", "NoWorker")
    assert world.create("run.train.2", "train").state == "dispatched"


def test_T3_a_task_whose_devices_are_gone_after_a_restart_fails_in_words(world):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("train", gpus=A100)
    world.running("run.train.0", "train")
    assert world.create("run.train.1", "train").state == "queued"
    world.install(("GPU-9", "H100-80GB"))
    assert world.task("run.train.0").state == "running"
    world.finish("run.train.0")
    view = world.task("run.train.1")
    assert (view.state, view.error.type) == ("failed", "NoDevice")
    assert "this machine has 1 x H100-80GB" in view.reason


def test_T3_an_outage_of_the_api_kills_no_healthy_attempt(world):
    world.running("run.step", dispatcher="notebook")
    world.clock.advance(600)
    assert world.do(supervisor.grace_after_restart) == 1
    restarted = supervisor.Supervisor(world.database)
    assert restarted.tick()
    world.beat("run.step")
    assert world.task("run.step").state == "running"
    for _ in range(9):
        world.clock.advance(7)
        reply = world.beat("run.step")
        restarted.tick()
    assert world.beat("run.step").code == "dispatcher_lost" and reply.directive == "continue"


@pytest.mark.parametrize("how", ["the machine sleeps", "the clock is set forward"])
def test_T3_time_in_which_nobody_could_be_heard_loses_no_attempt(world, how):
    world.running("run.step", dispatcher="notebook")
    world.supervisor.tick()
    (world.clock.advance if how == "the machine sleeps" else world.clock.step_wall)(4000)
    world.supervisor.tick()
    assert world.task("run.step").state == "running"
    assert world.beat("run.step").directive == "continue"


def test_T3_a_clock_that_is_set_back_keeps_no_dead_worker_alive(world):
    world.running("run.step")
    world.supervisor.tick()
    world.clock.step_wall(-4000)
    world.wait(32)
    assert world.task("run.step").epoch == 2


def test_T3_a_worker_that_reports_to_nobody_after_the_sleep_is_lost(world):
    world.running("run.step")
    world.supervisor.tick()
    world.clock.advance(4000)
    world.wait(29)
    assert world.task("run.step").epoch == 1
    world.wait(4)
    assert world.task("run.step").epoch == 2


def test_T4_a_dispatched_task_is_announced_until_somebody_claims_it(world):
    world.create("run.step")
    for number in range(1, 4):
        [row] = world.do(outbox.due)
        assert row.event_id == f"run.step.1.{number}"
        world.do(outbox.delivered, row.id)
        assert world.do(outbox.due) == []
        world.wait(12)
    world.claim("run.step", 1)
    world.wait(12)
    world.beat("run.step")
    assert world.do(outbox.due) == []


def test_T4_an_announcement_that_cannot_be_delivered_is_tried_again_and_then_shown(world):
    world.create("run.step")
    tries = 0
    while not world.do(outbox.dead_letters):
        for row in world.do(outbox.due):
            world.do(outbox.failed, row, "no route")
            tries += 1
        world.clock.advance(1)
    assert tries == outbox.MAX_TRIES
    assert world.do(outbox.dead_letters)[0].last_error == "no route"
    world.supervisor.tick()
    assert [row.event_id for row in world.do(outbox.due)] == ["run.step.1.2"]


def test_T5_creating_again_attaches_and_changes_nothing(world):
    first = world.create("run.step", args={"b": 1, "a": 2})
    again = world.create("run.step", args={"a": 2, "b": 1}, dispatcher="another")
    assert again.model_dump() == first.model_dump()


def test_T5_a_claim_repeated_by_the_same_worker_gets_the_same_attempt(world):
    world.create("run.step")
    first = world.claim("run.step", 1)
    again = world.claim("run.step", 1)
    third = world.claim_next()
    assert first.epoch == again.epoch == third.epoch and third.task.key == "run.step"
    assert len({first.token, again.token, third.token}) == 3
    assert len(world.task("run.step").attempts) == 1
    world.beat("run.step")


def test_T5_finishing_again_gives_the_same_reply(world):
    world.running("run.step")
    first = world.finish("run.step", output=1)
    assert world.finish("run.step", output=1).model_dump() == first.model_dump()
    with pytest.raises(FencedAttempt):
        world.finish("run.step", outcome="failed")


def test_T5_finishing_again_after_a_retry_began_does_not_end_the_next_attempt(world):
    world.running("run.step")
    world.finish("run.step", 1, "preempted")
    world.claim("run.step", 2)
    assert world.finish("run.step", 1, "preempted").state == "running"


def test_T5_usage_that_comes_again_is_counted_once(world):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("train", gpus=A100)
    world.running("run.train", "train")
    events = [usage("run.train", 1, seq, seq) for seq in range(1, 6)]
    random.Random(7).shuffle(events)
    for event in events * 3:
        world.beat("run.train", usage=event)
    world.finish("run.train", usage=usage("run.train", 1, 6, 5.5, "close"))
    world.finish("run.train", usage=usage("run.train", 1, 6, 5.5, "close"))
    with world.database.read() as tx:
        assert len(tx.all(sa.select(leases))) == 1


def test_T6_when_nobody_waits_any_more_everything_stops_within_one_lease(world):
    world.running("run.step.0", dispatcher="notebook")
    world.create("run.step.1", dispatcher="notebook")
    for _ in range(6):
        world.wait(10)
        world.beat("run.step.0")
        world.do(dispatchers.renew, "default", wire.DispatcherLease(id="notebook"))
    assert world.beat("run.step.0").directive == "continue"
    for _ in range(9):
        world.wait(9)
        reply = world.beat("run.step.0")
    assert (reply.directive, reply.code) == ("stop", "dispatcher_lost")
    assert world.task("run.step.1").state == "canceled"
    view = world.finish("run.step.0", outcome="canceled")
    assert view.state == "canceled" and "nobody waits" in view.reason and view.error.hint


def test_T6_a_worker_that_does_not_stop_loses_its_attempt(world):
    world.deploy("deaf", grace_s=5.0)
    world.running("run.deaf", "deaf")
    world.do(tasks.cancel, "default", "run.deaf", "enough")
    for _ in range(4):
        assert world.beat("run.deaf").code == "canceled"
        world.wait(6)
    view = world.task("run.deaf")
    assert (view.state, view.attempts[0].state) == ("canceled", "canceled")
    with pytest.raises(FencedAttempt):
        world.beat("run.deaf")


def test_T6_a_cancelled_run_starts_nothing_any_more(world):
    for index in range(8):
        world.create(f"run.step.{index}")
    world.claim("run.step.0", 1)
    world.do(runs.cancel, "default", "run", "enough")
    assert {world.task(f"run.step.{index}").state for index in range(1, 8)} == {"canceled"}
    world.do(attempts.worker_gone, "w1", "exited")
    assert world.task("run.step.0").state == "canceled"
    assert (world.run().state, world.run().reason) == ("canceled", "enough")


def test_T6_a_spent_budget_stops_the_run_also_when_its_tasks_are_short(world, used):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("gpu", (("A100-80GB", 1),))
    world.do(runs.create, "default", "run", wire.RunCreate(pipeline="p", budget_nano=10))
    world.running("run.step.0", "gpu")
    world.create("run.step.1", "gpu")
    world.finish("run.step.0", usage=[used(world, "run.step.0", 3)])
    view = world.task("run.step.1")
    assert (view.state, view.error.kind) == ("canceled", "budget")


def test_leases_and_states_are_consistent_in_the_tables(world):
    for index in range(4):
        world.running(f"run.step.{index}")
    world.finish("run.step.0")
    with world.database.read() as tx:
        running = {row.key for row in tx.all(sa.select(schema.tasks).where(schema.tasks.c.state == "running"))}
        held = {row.task for row in tx.all(sa.select(schema.attempts).where(schema.attempts.c.state == "running"))}
    assert running == held == {f"run.step.{index}" for index in (1, 2, 3)}
