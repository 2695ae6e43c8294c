"""The hold: what keeps a pod that works alive when nothing else would."""

from __future__ import annotations

from typing import Any


def test_a_task_outlives_the_window_without_a_floor(training: Any, cluster: Any) -> None:
    """After a redeploy the old Revision has no floor any more: only the hold keeps its pod."""
    training.deploy()
    key = training.start(cluster.seconds(150))
    pod = training.pod_of(key)
    cluster.redeploy("held")
    training.eventually(lambda: len(cluster.revisions("held")) == 2)
    found = training.result(key, timeout_s=90)
    assert (found["pods"], found["attempt"]) == ([pod], 1), "one attempt, on the pod that it began on"
    assert cluster.holds(pod), "it held"
    training.eventually(lambda: pod not in cluster.pods("held"), cluster.seconds(900), what="the old pod goes")


def test_the_hold_is_secret_and_only_one_at_a_time(training: Any, cluster: Any) -> None:
    training.deploy()
    first, second = training.start(3), None
    pod = training.pod_of(first)
    training.eventually(lambda: cluster.holds(pod))
    training.result(first)
    second = training.start(3)
    training.result(second)
    assert len(set(cluster.holds(pod))) == 1
    assert cluster.serving.pods("held")[0].proxy.most_in_flight <= 2, "one hold, and an event beside it"


def test_without_the_api_running_tasks_go_on_and_end(training: Any, cluster: Any) -> None:
    training.deploy()
    key = training.start(cluster.seconds(100))
    pod = training.pod_of(key)
    cluster.kill_api()
    training.eventually(
        lambda: f"step {round(cluster.seconds(100) / 0.1) - 1}" in cluster.log(pod) or _far(cluster, pod)
    )
    cluster.start_api()
    found = training.result(key, timeout_s=90)
    assert (found["pods"], found["attempt"]) == ([pod], 1)


def _far(cluster: Any, pod: str) -> bool:
    """Say whether the pod is held after the window: its output goes to the API, not to its own log."""
    return bool(cluster.holds(pod)) and cluster.serving.pods("held")[0].proxy.quiet_for_s() > cluster.seconds(60)
