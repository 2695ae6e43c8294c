"""From an event in the project's broker to a run: its Trigger brings it to the API, which starts one run.

Few tests that say much: each has a whole cluster of its own.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from trainlet.client.triggers import Triggers

BARE = {"ce-specversion": "1.0", "ce-source": "s", "ce-id": "1"}


@pytest.mark.parametrize("cluster", [{"oidc": True}], indirect=True)
def test_T5_S2_an_event_that_a_known_sender_delivers_twice_starts_one_run(training: Any, cluster: Any) -> None:
    cluster.imitates("a broker that delivers everything twice")
    training.deploy_triggers()
    cluster.broker.duplicate = True
    cluster.broker.sources.add("s3-source")
    training.send("e1", source="s3-source")
    run = training.run_of("e1")
    training.eventually(lambda: cluster.broker.delivered.count(("e1", 202)) == 2, what="both deliveries are taken")
    assert training.client.get_run(run).params["seconds"] == 0.2
    forged = {**BARE, "ce-type": "com.example.created"}
    assert bring(cluster, "on-created", forged) == 401, "whoever reaches the API is no sender yet"
    (event,) = training.events()
    assert [match.run_id for match in event.matches] == [run]


def test_T8_the_broker_asks_the_filter_first_and_what_it_gives_up_on_is_told(training: Any, cluster: Any) -> None:
    cluster.imitates("a look into the broker")
    training.deploy_triggers()
    training.send("text", "texts/1.txt")
    training.send("empty", rows=0)
    training.send("good")
    training.run_of("good")
    assert not [status for event, status in cluster.broker.delivered if event == "text"]
    known = {event.id: len(event.matches) for event in training.events()}
    assert known == {"good": 1, "empty": 0}, "a broker cannot look into data, so this one came"
    training.send("good", seconds=9)

    def told() -> bool:
        (view,) = (one for one in Triggers(training.client).all() if one.name == "on-created")
        return "gave up on the event 'good' (answered 422)" in view.reason

    training.eventually(told, what="the trigger says so")
    assert len(training.events()) == 2


def test_T4_what_comes_while_the_api_is_away_comes_again_or_as_a_dead_letter(training: Any, cluster: Any) -> None:
    cluster.imitates("a broker without patience")
    training.deploy_triggers()
    cluster.kill_api()
    training.send("patient")
    training.eventually(lambda: ("patient", 0) in cluster.broker.delivered, what="a delivery fails")
    cluster.broker.retries = 0
    training.send("given-up")
    training.eventually(lambda: "given-up" in cluster.broker.dead, what="the broker gives up")
    cluster.start_api()
    assert training.run_of("patient") != training.run_of("given-up")
    assert cluster.broker.dead == ["given-up"]


def test_a_beat_of_the_clusters_clock_before_its_time_starts_nothing(training: Any, cluster: Any) -> None:
    training.deploy_triggers()
    source = f"/apis/sources.knative.dev/v1/namespaces/{cluster.namespace}/pingsources/yearly"
    found = training.eventually(lambda: cluster.object(source), what="the schedule has a clock")
    assert (found["spec"]["schedule"], found["spec"]["timezone"]) == ("0 3 1 1 *", "Europe/Berlin")
    assert bring(cluster, "yearly", {**BARE, "ce-type": "dev.knative.sources.ping"}) == 202
    assert training.events() == []


def bring(cluster: Any, trigger: str, headers: dict[str, str]) -> int:
    """Post to the API as a broker would."""
    url = f"{cluster.url}/v1/projects/{cluster.project}/brokered/{trigger}"
    return httpx.post(url, headers=headers, content=b"{}", trust_env=False).status_code
