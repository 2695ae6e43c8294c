"""Events between the training API and a pod: foreign ones, old ones, lost ones."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

WAKE_UP = {
    "ce-specversion": "1.0",
    "ce-type": "dev.trainlet.step.requested",
    "ce-source": "/projects/default",
    "ce-id": "forged.1.1",
    "ce-subject": "forged",
    "ce-trainletfunction": "held",
    "content-type": "application/json",
}
DATA = {"task": "forged", "epoch": 1, "function": "held", "project": "default", "digest": "0" * 64, "bundle": "1" * 64}


def test_S1_an_event_that_the_api_did_not_sign_runs_nothing(training: Any, cluster: Any) -> None:
    cluster.imitates("a look into the broker")
    training.deploy()
    key = training.start(30)
    pod = training.pod_of(key)
    signature = {"ce-trainletsig": "A" * 86}
    for headers in (WAKE_UP, {**WAKE_UP, **signature}):
        cluster.post_event(headers, json.dumps(DATA).encode())
    training.eventually(lambda: [status for _, status in cluster.broker.delivered if status in (401, 403)][1:])
    assert training.state(key) == "running"
    assert training.pod_of(key) == pod and pod in cluster.pods("held")
    assert set(cluster.broker.dead) == {"forged.1.1"}, "refused for good, not tried again and again"


def test_T4_a_task_whose_event_was_lost_is_announced_again(training: Any, cluster: Any) -> None:
    """The broker acknowledges and loses everything: the floor brings a pod only after a first event, so one must come."""
    cluster.imitates("a broker that loses events")
    training.deploy()
    cluster.broker.lossy = True
    key = training.start(0.3)
    training.eventually(lambda: cluster.broker.lost, what="an event is lost")
    cluster.broker.lossy = False
    assert training.result(key)["attempt"] == 1


def test_an_event_for_a_task_that_is_over_is_acknowledged_and_does_nothing(training: Any, cluster: Any) -> None:
    cluster.imitates("a look into the broker")
    training.deploy()
    key = training.start(0.3)
    training.result(key)
    headers, body = cluster.broker.accepted[-1]
    before = len(cluster.broker.delivered)
    cluster.post_event(headers, body)
    training.eventually(lambda: len(cluster.broker.delivered) > before)
    assert cluster.broker.delivered[-1][1] == 202
    assert len(training.client.get_task(key).attempts) == 1


def test_T4_an_event_that_a_pod_could_not_take_is_delivered_again(training: Any, cluster: Any) -> None:
    """The pod that the event starts finds no training API: it answers 503, and the broker comes again."""
    cluster.imitates("a look into the broker")
    training.deploy()
    key = training.start(0.3)
    training.eventually(lambda: cluster.broker.accepted, what="the broker has the event")
    cluster.kill_api()
    training.eventually(lambda: 503 in cluster.broker.answers_to(key), what="a pod says that it cannot")
    cluster.start_api()
    assert training.result(key)["attempt"] == 1
    training.eventually(lambda: cluster.broker.answers_to(key)[-1] == 202, what="the event is acknowledged")


@pytest.mark.parametrize("cluster", [{"speed": 40.0, "start_s": 60}], indirect=True)
def test_T4_a_dead_letter_is_said_and_its_task_runs_all_the_same(training: Any, cluster: Any) -> None:
    """No node fits for so long that the broker gives up: the task says so, and runs when there is one."""
    cluster.imitates("a cluster without nodes, and a broker without patience")
    training.deploy()
    cluster.lose_nodes()
    cluster.broker.retries = 1
    key = training.start(0.3)
    training.eventually(lambda: "the broker gave up on it" in training.client.get_task(key).reason, what="it says so")
    cluster.lose_nodes(False)
    assert training.result(key)["attempt"] == 1


@pytest.mark.parametrize("cluster", [{"oidc": True}], indirect=True)
def test_S1_with_oidc_events_come_from_the_api_to_the_broker_and_from_there_to_a_pod(
    training: Any, cluster: Any
) -> None:
    """A real event of the API, posted by a stranger to the broker or brought to the pod by another's identity, does nothing."""
    cluster.imitates("a broker that checks who sends")
    training.deploy()
    key = training.start(0.3)
    assert training.result(key)["attempt"] == 1
    headers, body = cluster.broker.accepted[-1]
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        cluster.post_event(headers, body)
    assert cluster.broker.refused == 1
    audience = f"trainlet.dev/function/{cluster.namespace}/held"
    another = cluster.kubernetes.token(cluster.namespace, "default", audience=audience)
    answers = [
        cluster.serving.request(cluster.namespace, "held", {**headers, "authorization": f"Bearer {token}"}, body, 30.0)
        for token in (another, "", cluster.kubernetes.token(cluster.namespace, "default"))
    ]
    assert answers == [403, 401, 401]
    assert len(training.client.get_task(key).attempts) == 1
