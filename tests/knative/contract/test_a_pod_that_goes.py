"""The end of pods, with notice and without: the work goes on from its checkpoint on another."""

from __future__ import annotations

from typing import Any

from trainlet.core import wire


def _in_the_middle(training: Any, key: str) -> str:
    """Wait until a task has a checkpoint; returns its pod."""
    pod: str = training.pod_of(key)
    training.eventually(lambda: training.client.get_task(key).checkpoints, what="a checkpoint")
    return pod


def test_T3_a_pod_that_drains_saves_and_the_next_one_goes_on(training: Any, cluster: Any) -> None:
    training.deploy()
    key = training.start(20)
    first = _in_the_middle(training, key)
    cluster.delete_pod(first)
    training.eventually(lambda: training.client.get_task(key).epoch == 2, what="another attempt")
    attempt = training.client.get_task(key).attempts[0]
    assert (attempt.state, attempt.worker) == ("preempted", f"{cluster.namespace}.{first}")
    assert "drains" in attempt.reason
    found = training.result(key, timeout_s=90)
    assert found["first"] > 0
    assert (found["attempt"], found["pods"][0], len(found["pods"])) == (2, first, 2)


def test_T3_a_pod_that_is_killed_is_replaced_from_its_checkpoint(training: Any, cluster: Any) -> None:
    training.deploy()
    key = training.start(20)
    pod = _in_the_middle(training, key)
    cluster.kill_pod(pod)
    found = training.result(key, timeout_s=90)
    assert found["attempt"] == 2
    assert found["first"] > 0
    states = [attempt.state for attempt in training.client.get_task(key).attempts]
    assert states in (["lost", "succeeded"], ["preempted", "succeeded"]), "a kubelet may leave two seconds to save"


def test_T3_a_lost_node_costs_one_lease(training: Any, cluster: Any) -> None:
    training.deploy()
    key = training.start(20)
    cluster.lose_pod(_in_the_middle(training, key))
    found = training.result(key, timeout_s=90)
    assert (found["attempt"], len(found["pods"])) == (2, 2)


def test_T6_a_cancelled_task_stops_its_pods_work_after_a_checkpoint(training: Any, cluster: Any) -> None:
    training.deploy()
    key = training.start(120)
    pod = _in_the_middle(training, key)
    training.client.cancel_task(key)
    training.wait(key, "canceled")
    training.eventually(lambda: not cluster.pinned(pod), what="the pod is released")
    training.eventually(lambda: cluster.floor("held") == 0)


def test_T6_a_task_whose_dispatcher_is_gone_stops_costing_and_can_go_on(training: Any, cluster: Any) -> None:
    """Whoever waited says nothing any more: the task saves and stops within its lease, and a resume goes on from there."""
    training.deploy()
    key = training.start_waited_for(20, wire.DispatcherLease(id="gone", lease_s=5.0))
    pod = _in_the_middle(training, key)
    view = training.wait(key, "canceled")
    assert view.error.type == "dispatcher_lost"
    training.eventually(lambda: not cluster.pinned(pod), what="the pod is released")
    training.eventually(lambda: cluster.floor("held") == 0, what="no pod is wanted")
    billed = training.client.usage(task=key).gpu_seconds
    training.client.resume_task(key, wire.Resume())
    found = training.result(key)
    assert (found["attempt"], found["first"] > 0) == (2, True)
    assert training.client.usage(task=key).gpu_seconds >= billed
