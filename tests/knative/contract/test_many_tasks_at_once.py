"""Scale-out: as many pods as tasks, at once; none waits behind a busy pod, and no busy pod is taken away."""

from __future__ import annotations

import os
from typing import Any

import pytest

ROUNDS = int(os.environ.get("TRAINLET_TEST_ROUNDS", "2"))  # of a scale-down from four pods to one


def _each_came_with_a_cold_start(training: Any, cluster: Any, keys: list[str]) -> None:
    """Every task has a pod of its own, and was claimed within that pod's cold start and two seconds."""
    pods = [training.pod_of(key) for key in keys]
    assert len(set(pods)) == len(keys), "none shares a pod"
    for key in keys:
        assert training.state(key) == "running", "none has ended: they ran at the same time"
    for latency, pod in zip(training.latencies(keys), pods, strict=True):
        assert latency <= cluster.cold_start(pod) + 2.0 * cluster.slack, f"{pod} came late"
    for key in keys:
        training.client.cancel_task(key)
        training.wait(key, "canceled")


def test_five_tasks_at_once_on_a_function_at_zero_each_get_a_pod(training: Any, cluster: Any) -> None:
    training.deploy()
    _each_came_with_a_cold_start(training, cluster, [training.start(120) for _ in range(5)])


def test_six_tasks_eight_seconds_apart_each_get_a_pod_and_none_waits_behind_a_busy_one(
    training: Any, cluster: Any
) -> None:
    training.deploy()
    keys = []
    for _ in range(6):
        keys.append(training.start(120))
        cluster.let_pass(8)
    _each_came_with_a_cold_start(training, cluster, keys)


def test_the_floor_is_what_runs_and_waits(training: Any, cluster: Any) -> None:
    training.deploy()
    keys = []
    for number in range(2):
        keys.append(training.start(60))
        training.pod_of(keys[-1])
        training.eventually(lambda wanted=number + 1: cluster.floor("held") == wanted)
    for key in keys:
        training.client.cancel_task(key)
        training.wait(key, "canceled")
    training.eventually(lambda: cluster.floor("held") == 0)


def test_T5_a_broker_that_delivers_everything_twice_starts_nothing_twice(training: Any, cluster: Any) -> None:
    cluster.imitates("a broker that repeats itself")
    training.deploy()
    cluster.broker.duplicate = True
    keys = [training.start(0.5) for _ in range(3)]
    for key in keys:
        assert training.result(key)["attempt"] == 1
    assert all(len(training.client.get_task(key).attempts) == 1 for key in keys)


@pytest.mark.parametrize("cluster", [{"speed": 20.0, "warm_s": 0}], indirect=True)
def test_a_scale_down_spares_the_busy_pod(training: Any, cluster: Any) -> None:
    """One long task and three short ones, again and again: only the pods of the short ones go."""
    training.deploy()
    long = training.start(3600)
    busy = training.pod_of(long)
    for _ in range(ROUNDS):
        short = [training.start(0.5) for _ in range(3)]
        training.eventually(lambda: len(cluster.pods("held")) == 4, what="four pods")
        for key in short:
            training.result(key)
        training.eventually(lambda: cluster.pods("held") == [busy], cluster.seconds(1200), what="scale down to one")
        assert (training.state(long), training.pod_of(long)) == ("running", busy)
    assert cluster.pinned(busy)
    training.client.cancel_task(long)
    training.wait(long, "canceled")
    training.eventually(lambda: cluster.pods("held") == [], cluster.seconds(1200), what="scale to zero")
