"""What is known of a function's pods: which Revision each serves, and how the newest one started."""

import dataclasses

from trainlet.core.wire import ClaimRequest
from trainlet_functions.state import attempts, claims, functions


def ask(world, pod, revision):
    who = attempts.WorkerIdentity("default", "train", pod, revision)
    with world.database.write() as tx:
        return claims.claim_next(tx, who, ClaimRequest(worker=pod, nonce=f"{pod}.1", revision=revision))


def revisions(world):
    return world.do(functions.get, "default", "train").revisions


def test_workers_are_counted_by_the_revision_that_they_serve(world):
    world.deploy("train")
    assert revisions(world) == {}
    for pod, revision in (("ns.a", "train-00001"), ("ns.b", "train-00002"), ("ns.c", "train-00002")):
        ask(world, pod, revision)
    assert revisions(world) == {"train-00001": 1, "train-00002": 2}
    ask(world, "ns.local", None)
    assert revisions(world) == {"train-00001": 1, "train-00002": 2}, "one that is in no pod has none"


def test_a_worker_that_renews_its_lease_keeps_its_revision(world):
    world.deploy("train")
    key = world.create("run.train", function="train").key
    with world.database.write() as tx:
        who = attempts.WorkerIdentity(world.task(key).project, "train", "ns.a", "train-00001")
        attempts.note_worker(tx, who, None, busy=True)
        attempts.note_worker(tx, dataclasses.replace(who, revision=None), None, busy=True)
    assert revisions(world) == {"train-00001": 1}


def test_the_last_cold_start_of_each_function_is_remembered(world):
    for phases in ({"pull": 7.0, "boot": 1.0}, {"pull": 1.0, "boot": 2.0}, {"pull": 1.0, "boot": 2.0}):
        with world.database.write() as tx:
            functions.note_cold_start(tx, "default", "train", phases)
            functions.note_cold_start(tx, "other", "train", {"pull": 9.0})
    assert world.do(functions.cold_starts, "default") == {"train": {"pull": 1.0, "boot": 2.0}}
