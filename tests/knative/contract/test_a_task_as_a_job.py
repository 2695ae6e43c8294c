"""Steps with `backend="job"`: a Job for each wake-up, from the same image, with the same promises."""

from __future__ import annotations

from typing import Any


def test_a_task_runs_in_a_job_of_its_own(training: Any, cluster: Any) -> None:
    training.deploy("held-as-job")
    keys = [training.start(0.3, "held-as-job") for _ in range(2)]
    pods = set()
    for key in keys:
        found = training.result(key)
        (pod,) = found["pods"]
        pods.add(pod)
        (attempt,) = training.client.get_task(key).attempts
        assert attempt.worker == f"{cluster.namespace}.{pod}"
        assert [(device.sku, device.virtual) for device in attempt.devices] == [("A100-80GB", True)]
    assert len(pods) == 2, "nothing stays warm"
    training.eventually(lambda: not cluster.pods("held-as-job"), what="the Jobs have ended")


def test_T3_a_job_that_is_evicted_saves_and_another_goes_on(training: Any, cluster: Any) -> None:
    training.deploy("held-as-job")
    key = training.start(10, "held-as-job")
    first = training.pod_of(key)
    training.eventually(lambda: training.client.get_task(key).checkpoints, what="a checkpoint")
    cluster.delete_pod(first)
    found = training.result(key, timeout_s=90)
    assert (found["attempt"], found["pods"][0], len(found["pods"])) == (2, first, 2)
    assert found["first"] > 0
    assert training.client.get_task(key).attempts[0].state == "preempted"


def test_T3_a_job_that_is_killed_costs_one_lease(training: Any, cluster: Any) -> None:
    training.deploy("held-as-job")
    key = training.start(10, "held-as-job")
    pod = training.pod_of(key)
    training.eventually(lambda: training.client.get_task(key).checkpoints, what="a checkpoint")
    cluster.kill_pod(pod)
    found = training.result(key, timeout_s=90)
    assert (found["attempt"], len(found["pods"])) == (2, 2)
    assert training.client.get_task(key).attempts[0].state == "lost"


def test_T5_an_event_that_comes_twice_makes_one_job(training: Any, cluster: Any) -> None:
    cluster.imitates("a broker that repeats itself")
    training.deploy("held-as-job")
    cluster.broker.duplicate = True
    key = training.start(0.3, "held-as-job")
    assert training.result(key)["attempt"] == 1
    headers, body = cluster.broker.accepted[-1]
    before = len(cluster.broker.delivered)
    cluster.post_event(headers, body)
    training.eventually(lambda: len(cluster.broker.delivered) > before)
    assert len(cluster.jobs.all("held-as-job")) == 1


def test_S1_a_job_of_a_forged_event_runs_nothing(training: Any, cluster: Any) -> None:
    cluster.imitates("a look at Jobs")
    training.deploy("held-as-job")
    key = training.start(0.3, "held-as-job")
    training.result(key)
    headers, body = cluster.broker.accepted[-1]
    cluster.post_event({**headers, "ce-id": "forged", "ce-trainletsig": "A" * 86}, body)
    forged = training.eventually(lambda: cluster.jobs.all("held-as-job")[1:], what="its Job")[0]
    training.eventually(lambda: forged.status is not None, what="its end")
    assert forged.status == 2
    assert "is not taken" in cluster.log(forged.name)
    assert len(training.client.get_task(key).attempts) == 1
