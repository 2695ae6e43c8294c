"""The hold: what keeps a pod that works alive when nothing else would."""

from __future__ import annotations

from typing import Any

import pytest

FAST = {"speed": 40.0}


@pytest.mark.parametrize("cluster", [FAST], indirect=True)
def test_a_task_outlives_the_window_without_a_floor(training: Any, cluster: Any) -> None:
    """After a redeploy the old Revision has no floor any more: only the hold keeps its pod."""
    training.deploy()
    key = training.start(cluster.seconds(240))
    pod = training.pod_of(key)
    cluster.redeploy("held")
    training.eventually(lambda: len(cluster.revisions("held")) == 2)
    old, _ = cluster.revisions("held")
    assert training.client.get_function("held").revisions == {old: 1}, "the worker says which one it serves"
    found = training.result(key, timeout_s=cluster.seconds(240) + 90)
    assert (found["pods"], found["attempt"]) == ([pod], 1), "one attempt, on the pod that it began on"
    seen = cluster.look_at_holds(pod)
    assert seen is None or seen.count > 0, "it held"
    training.eventually(lambda: pod not in cluster.pods("held"), cluster.seconds(900), what="the old pod goes")


@pytest.mark.parametrize("cluster", [FAST], indirect=True)
def test_without_a_hold_the_window_takes_the_pod(training: Any, cluster: Any) -> None:
    """The counterpart: a task whose pod does not hold and has no floor is gone after the window, and goes on elsewhere."""
    cluster.imitates("that no hold comes through")
    training.deploy()
    cluster.refuse_holds()
    key = training.start(cluster.seconds(1200))
    pod = training.pod_of(key)
    cluster.redeploy("held")
    training.eventually(lambda: pod not in cluster.pods("held"), what="the pod goes")
    cluster.refuse_holds(False)
    attempt = training.eventually(lambda: [one for one in training.client.get_task(key).attempts if one.epoch == 1])[0]
    assert (attempt.state, attempt.worker.partition(".")[2]) == ("preempted", pod)
    training.client.cancel_task(key)
    training.wait(key, "canceled")


def test_the_hold_is_secret_and_the_same_for_the_life_of_a_worker(training: Any, cluster: Any) -> None:
    cluster.imitates("a look into queue-proxy")
    training.deploy()
    first = training.start(2)
    pod = training.pod_of(first)
    training.eventually(lambda: cluster.holds(pod))
    training.result(first)
    training.result(training.start(2))
    (path,) = set(cluster.holds(pod))
    assert len(path.rpartition("/")[2]) >= 32


@pytest.mark.parametrize(
    ("cluster", "cut"), [({"drain_s": 60}, False), ({"drain_s": 60, "hold_scaled": False}, True)], indirect=["cluster"]
)
def test_a_task_outlives_the_timeout_of_its_requests(training: Any, cluster: Any, cut: bool) -> None:
    """The hold is renewed before queue-proxy cuts it; one that is cut all the same is taken up again. Never are there two."""
    training.deploy()
    key = training.start(cluster.seconds(200))
    pod = training.pod_of(key)
    found = training.result(key, timeout_s=cluster.seconds(200) + 90)
    assert (found["pods"], found["attempt"]) == ([pod], 1)
    seen = cluster.look_at_holds(pod)
    if seen is not None:
        assert seen.count >= 2
        assert seen.most_at_once == 1
        assert (seen.cut > 0) is cut


@pytest.mark.parametrize("cluster", [FAST], indirect=True)
def test_with_the_api_down_for_ten_minutes_running_tasks_go_on(training: Any, cluster: Any) -> None:
    training.deploy()
    going, ending = training.start(cluster.seconds(900)), training.start(cluster.seconds(300))
    pods = {key: training.pod_of(key) for key in (going, ending)}
    cluster.kill_api()
    cluster.let_pass(600)
    assert set(cluster.pods("held")) >= {pods[going]}, "the pod that works is there"
    cluster.start_api()
    for key in (going, ending):
        found = training.result(key, timeout_s=cluster.seconds(900) + 90)
        assert (found["pods"], found["attempt"]) == ([pods[key]], 1)
