"""Where pods bring their own devices: a claim is good only with what the step asked for."""

import dataclasses

import pytest

from trainlet.core.wire import ClaimRequest, Device
from trainlet_functions.state import attempts, claims, functions
from trainlet_functions.state.database import Capacity
from trainlet_functions.state.problems import WrongDevices

WHO = attempts.WorkerIdentity("default", "train", "ns.pod")


@pytest.fixture
def pods(world):
    world.database.capacity = Capacity(owns_devices=False, cpu_slots=None)
    world.deploy("train", gpus=(("H100-80GB", 2), ("A100-80GB", 1)))
    return world


def ask(world, *skus):
    devices = [Device(uuid=f"GPU-{number}", sku=sku) for number, sku in enumerate(skus)]
    who = dataclasses.replace(WHO, project=world.task("run.train").project)
    with world.database.write() as tx:
        reply = claims.claim_next(tx, who, ClaimRequest(worker="ns.pod", nonce="p.1", devices=devices))
    world.tokens[reply.task.key, reply.epoch] = reply.token
    return reply


@pytest.mark.parametrize("skus", [(), ("H100-80GB",), ("L4", "L4")])
def test_a_pod_with_other_devices_gets_nothing_and_is_told_why(pods, skus):
    pods.create("run.train", function="train")
    with pytest.raises(WrongDevices, match="the task needs 2 x H100-80GB or 1 x A100-80GB"):
        ask(pods, *skus)
    assert pods.task("run.train").state == "dispatched"


def test_the_first_alternative_that_fits_is_given(pods):
    pods.create("run.train", function="train")
    given = ask(pods, "A100-80GB", "H100-80GB", "H100-80GB", "H100-80GB").devices
    assert [device.sku for device in given] == ["H100-80GB", "H100-80GB"]


def test_a_task_that_fits_is_not_held_up_by_an_older_one_that_does_not(pods):
    pods.create("run.train", function="train")
    pods.clock.advance(1)
    pods.deploy("train", gpus=(("L4", 1),))
    later = pods.create("run.later", function="train")
    assert ask(pods, "L4").task.key == later.key


def test_a_pod_that_is_long_gone_is_forgotten(pods):
    pods.create("run.train", function="train")
    ask(pods, "A100-80GB")
    pods.finish("run.train", worker="ns.pod")
    assert pods.do(functions.get, "default", "train").workers == 1
    pods.clock.advance(899)
    pods.supervisor.tick()
    assert pods.do(functions.get, "default", "train").workers == 1
    pods.clock.advance(2)
    pods.supervisor.tick()
    assert pods.do(functions.get, "default", "train").workers == 0
