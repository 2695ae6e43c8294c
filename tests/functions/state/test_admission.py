"""Who is dispatched when not everybody fits, and what those who wait are told."""

from __future__ import annotations

import pytest

from trainlet.core import errors
from trainlet_functions.state import admission, tasks
from trainlet_functions.state.database import Capacity


def states(world, *keys: str) -> list[str]:
    return [world.task(key).state for key in keys]


def test_cpu_tasks_are_bounded_by_the_slots_and_go_in_order(world):
    keys = [f"run.step.{index}" for index in range(7)]
    for key in keys:
        world.create(key)
    assert states(world, *keys) == ["dispatched"] * 4 + ["queued"] * 3
    assert world.task(keys[4]).reason == "waiting for a CPU slot: all 4 are busy"
    assert world.task(keys[5]).reason == "waiting: earlier tasks of step go first"
    world.claim(keys[0], 1)
    world.finish(keys[0])
    assert states(world, *keys[4:]) == ["dispatched", "queued", "queued"]


def test_a_function_never_has_more_tasks_out_than_its_maximum(world):
    world.deploy("narrow", max_workers=1)
    world.create("run.a", function="narrow")
    world.create("run.b", function="narrow")
    world.create("run.c")
    assert states(world, "run.a", "run.b", "run.c") == ["dispatched", "queued", "dispatched"]
    assert world.task("run.b").reason == "waiting for a worker: all 1 of narrow are busy"


def test_two_attempts_never_hold_the_same_device(world):
    world.install(*[(f"GPU-{index}", "A100-80GB") for index in range(4)])
    world.deploy("train", gpus=(("A100-80GB", 2),))
    held = []
    for index in range(2):
        held += [device.uuid for device in world.running(f"run.train.{index}", "train").devices]
    assert sorted(held) == [f"GPU-{index}" for index in range(4)]
    waiting = world.create("run.train.2", "train")
    assert waiting.reason == "waiting for 2 x A100-80GB: 0 of 4 devices free"


def test_a_small_request_does_not_starve_a_large_one_that_came_first(world):
    world.install(*[(f"GPU-{index}", "A100-80GB") for index in range(4)])
    world.deploy("small", gpus=(("A100-80GB", 1),))
    world.deploy("large", gpus=(("A100-80GB", 4),))
    world.running("run.small.0", "small")
    large = world.create("run.large", "large")
    assert large.reason == "waiting for 4 x A100-80GB: 3 of 4 devices free"
    world.clock.advance(1)
    assert world.create("run.small.1", "small").reason == "waiting for 1 x A100-80GB: earlier tasks go first"
    world.finish("run.small.0")
    assert states(world, "run.large", "run.small.1") == ["dispatched", "queued"]


def test_a_task_that_waits_does_not_block_another_kind_of_device(world):
    world.install(("GPU-0", "A100-80GB"), ("GPU-1", "H100-80GB"))
    world.deploy("old", gpus=(("A100-80GB", 1),))
    world.deploy("new", gpus=(("H100-80GB", 1),))
    world.create("run.old.0", "old")
    world.create("run.old.1", "old")
    assert world.create("run.new", "new").state == "dispatched"


def test_the_first_alternative_that_is_free_is_taken(world):
    world.install(("GPU-0", "H100-80GB"), ("GPU-1", "A100-80GB"))
    world.deploy("train", gpus=(("H100-80GB", 1), ("A100-80GB", 1)))
    skus = [world.running(f"run.train.{n}", "train").devices[0].sku for n in range(2)]
    assert skus == ["H100-80GB", "A100-80GB"]


def test_a_generic_virtual_device_takes_on_the_sku_that_was_asked_for(world):
    world.install(("virtual-0", "any"))
    world.deploy("train", gpus=(("H100-80GB", 1),))
    [device] = world.running("run.train", "train").devices
    assert (device.sku, device.virtual) == ("H100-80GB", True)


def test_a_request_that_can_never_fit_names_what_this_machine_has(world):
    world.install(("GPU-0", "A100-80GB"))
    world.deploy("train", gpus=(("H100-80GB", 8),))
    with pytest.raises(errors.UserError, match="this machine has 1 x A100-80GB"):
        world.create("run.train", "train")


def test_a_cluster_assigns_no_devices_and_takes_those_the_worker_found(world):
    world.database.capacity = Capacity(owns_devices=False, cpu_slots=None)
    world.deploy("train", gpus=(("H100-80GB", 8),))
    assert world.create("run.train", "train").state == "dispatched"


def test_the_demand_is_what_is_dispatched_or_running_at_most_the_maximum(world):
    world.deploy("narrow", max_workers=2)
    for index in range(3):
        world.create(f"run.step.{index}")
        world.create(f"run.narrow.{index}", function="narrow")
    world.claim("run.step.0", 1)
    with world.database.read() as tx:
        wanted = {name: count for (_project, name), (_spec, count) in admission.demand(tx).items()}
        assert wanted == {"step": 2, "narrow": 2} == {n: c for (_, n), c in world.supervisor.demand(tx).items()}


def test_cancelling_a_waiting_task_lets_the_next_one_in(world):
    for index in range(5):
        world.create(f"run.step.{index}")
    world.do(tasks.cancel, "default", "run.step.0", "not needed")
    assert states(world, "run.step.0", "run.step.4") == ["canceled", "dispatched"]
