"""From zero: an event and a floor bring a pod, the task runs on it while it holds, and the pod goes when it is idle."""

from __future__ import annotations

from typing import Any


def test_a_task_runs_on_a_pod_that_came_from_zero(training: Any, cluster: Any) -> None:
    training.deploy()
    assert cluster.pods("held") == []
    key = training.start(0.3)
    found = training.result(key)
    (pod,) = found["pods"]
    view = training.client.get_task(key)
    (attempt,) = view.attempts
    assert attempt.worker == f"{cluster.namespace}.{pod}"
    assert [(device.sku, device.virtual) for device in attempt.devices] == [("A100-80GB", True)]
    training.eventually(lambda: cluster.floor("held") == 0, what="the floor goes back to zero")
    training.eventually(lambda: cluster.pods("held") == [], cluster.seconds(600), what="scale to zero")
