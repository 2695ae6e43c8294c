"""A broker or a clock brings what triggers wait for, twice is once, and what fails is told."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.core import envelopes
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import OBJECT_CREATED, SCHEDULE_DUE, Watch
from trainlet_functions.triggers import tables

BROUGHT = {
    "ce-specversion": "1.0",
    "ce-type": "com.example.created",
    "ce-source": "/test",
    "ce-id": "1",
    "content-type": "application/json",
}


class Broker:
    """Posts as a broker does, with the token of a sender of the project or with none."""

    def __init__(self, http: Any, token: str | None) -> None:
        self._http = http
        self._identity = {} if token is None else {"Authorization": f"Bearer {token}"}

    def post(self, path: str, data: bytes, headers: dict[str, str]) -> Any:
        return self._http.post(path, data=data, headers={**headers, **self._identity, "Prefer": "reply"})


@pytest.fixture(params=["a sender with a token", "anybody where brokers are believed"])
def broker(request: pytest.FixtureRequest, stand: Any, http: Any) -> Broker:
    if request.param == "a sender with a token":
        return Broker(http, stand.token("events"))
    stand.believes_brokers = True
    return Broker(http, None)


@pytest.fixture
def program(function: FunctionSpec) -> dict[str, Any]:
    node = {"id": "f", "function": "f", "digest": function.digest(), "inputs": {}}
    graph = {"name": "retrain", "parameters": {}, "required": ["data"], "nodes": [node]}
    return {"pipeline": "retrain", "graph": graph}


@pytest.fixture
def subscription(person: Any, program: dict[str, Any]) -> str:
    body = {"program": program, "filters": [{"exact": {"type": "com.example.created"}}],
            "params": {"data": {"path": "$.data"}}, "flow": {"window_s": 3600, "max_batch": 100}}  # fmt: skip
    assert person("PUT", "/v1/subscriptions/retrain", body).status_code == 200
    return "/v1/projects/p/brokered/retrain"


@pytest.fixture
def schedule(stand: Any, person: Any, program: dict[str, Any]) -> str:
    """Return the path of a schedule whose moment has come."""
    body = {"program": program, "when": "0 3 1 1 *", "tz": "Europe/Berlin", "params": {"data": {"path": "$.data.at"}},
            "catch_up": "all"}  # fmt: skip
    assert person("PUT", "/v1/schedules/yearly", body).status_code == 200
    with stand.database.write() as tx:
        tx.run(
            tables.triggers.update().values(tick_ns=1_767_232_800_000_000_000)
        )  # 2026-01-01, two in the night of UTC
    return "/v1/projects/p/brokered/yearly"


def waiting(person: Any) -> int:
    return int(person("GET", "/v1/subscriptions/retrain").json["waiting"])


def test_registering_a_trigger_tells_the_cluster_what_it_waits_for(
    stand: Any, subscription: str, schedule: str, person: Any, program: dict[str, Any]
) -> None:
    body = {"program": program, "filters": [{"exact": {"type": OBJECT_CREATED}}], "params": {"data": {"path": "$.id"}},
            "poll": {"url": "file:///tmp"}}  # fmt: skip
    assert person("PUT", "/v1/subscriptions/looks", body).status_code == 200
    body = {
        "program": program,
        "filters": [{"exact": {"type": "dev.trainlet.run.succeeded"}}],
        "params": {"data": {"path": "$.id"}},
    }
    assert person("PUT", "/v1/subscriptions/chain", body).status_code == 200
    assert stand.backend.watched == [
        ("p", Watch(name="retrain", filters=[{"exact": {"type": "com.example.created"}}])),
        ("p", Watch(name="yearly", when="0 3 1 1 *", tz="Europe/Berlin")),
    ], "what the API looks at by itself sends nothing, nor does what it says itself"


def test_T5_an_event_that_is_brought_again_changes_nothing_and_gets_no_body(
    broker: Any, person: Any, subscription: str
) -> None:
    for attempt in range(3):
        sent = {**BROUGHT, "ce-knativearrivaltime": f"2026-01-01T00:00:0{attempt}Z"}
        answer = broker.post(subscription, data=b'{"uri": "a"}', headers=sent)
        assert (answer.status_code, answer.data) == (202, b""), "a broker takes a body for a reply event"
    assert waiting(person) == 1


def test_S2_only_a_sender_of_the_project_may_bring_something(
    stand: Any, http: Any, person: Any, subscription: str
) -> None:
    senders = [
        (None, 401),
        ("tl_made-up", 401),
        (stand.token("events", project="q"), 403),
        (stand.token("worker:f"), 403),
    ]
    for token, status in senders:
        for path in (subscription, f"{subscription}/dead-letters"):
            assert Broker(http, token).post(path, b"1", BROUGHT).status_code == status
    assert waiting(person) == 0


def test_a_trigger_that_is_not_there_is_worth_coming_again_and_a_wrong_event_is_not(
    broker: Any, subscription: str
) -> None:
    """A broker repeats 404: GitOps may have made the Trigger before the subscription was deployed."""
    assert broker.post("/v1/projects/p/brokered/other", data=b"1", headers=BROUGHT).status_code == 404
    without_id = {name: value for name, value in BROUGHT.items() if name != "ce-id"}
    assert broker.post(subscription, data=b"1", headers=without_id).status_code == 422
    assert broker.post(subscription, data=b"1", headers=BROUGHT).status_code == 202
    assert broker.post(subscription, data=b"2", headers=BROUGHT).status_code == 422, (
        "a broker would repeat a 409 for hours"
    )


def test_S1_what_only_the_platform_says_is_not_taken_from_a_broker(broker: Any, person: Any, subscription: str) -> None:
    """Wake-ups of workers pass the same broker, and the platform's own news may come back: neither is bad or new."""
    for own in (
        {"ce-type": envelopes.WAKE_UP},
        {"ce-type": "dev.trainlet.run.succeeded"},
        {"ce-source": "/projects/p"},
    ):
        assert broker.post(subscription, data=b"{}", headers={**BROUGHT, **own}).status_code == 202
    assert person("GET", "/v1/events").json["items"] == []


def test_S2_a_source_that_the_project_may_not_use_comes_from_no_broker_either(
    broker: Any, person: Any, subscription: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_EVENT_SOURCES", "p=s3://p-*")
    assert broker.post(subscription, data=b"{}", headers=BROUGHT).status_code == 403
    assert waiting(person) == 0


def test_T4_what_a_broker_gave_up_on_is_taken_in_as_the_same_event(broker: Any, person: Any, subscription: str) -> None:
    dead = {**BROUGHT, "ce-knativeerrorcode": "503", "ce-knativeerrordest": "http://api", "ce-knativeerrordata": "x"}
    assert broker.post(f"{subscription}/dead-letters", data=b'{"uri": "a"}', headers=dead).status_code == 202
    assert broker.post(subscription, data=b'{"uri": "a"}', headers=BROUGHT).status_code == 202
    assert waiting(person) == 1
    (event,) = person("GET", "/v1/events").json["items"]
    assert "knativeerrorcode" not in person("GET", f"/v1/events/{event['number']}").json["event"]


def test_T8_a_dead_letter_that_can_never_be_taken_in_is_told_at_its_trigger(
    broker: Any, person: Any, subscription: str
) -> None:
    broker.post(subscription, data=b"1", headers=BROUGHT)
    dead = {**BROUGHT, "ce-knativeerrorcode": "422"}
    answer = broker.post(f"{subscription}/dead-letters", data=b"2", headers=dead)
    assert (answer.status_code, answer.data) == (202, b""), "to bring it once more is of no use"
    reason = person("GET", "/v1/subscriptions/retrain").json["reason"]
    assert "gave up on the event '1' (answered 422)" in reason and "came before with other data" in reason
    assert waiting(person) == 1


def test_a_beat_of_the_clusters_clock_fires_a_moment_that_has_come_once(stand: Any, broker: Any, schedule: str) -> None:
    """However often it beats, and whoever else looks: the moment is one event."""
    for beat in range(3):
        sent = {**BROUGHT, "ce-type": "dev.knative.sources.ping", "ce-id": f"random-{beat}"}
        assert broker.post(schedule, data=b'{"look": "now"}', headers=sent).status_code == 202
    with stand.database.read() as tx:
        rows = tx.all(sa.select(tables.events.c.type, tables.events.c.id))
    assert [(row.type, row.id) for row in rows] == [(SCHEDULE_DUE, "2026-01-01T02:00:00Z")]


def test_a_clock_that_is_early_fires_nothing(stand: Any, broker: Any, schedule: str) -> None:
    with stand.database.write() as tx:
        tx.run(tables.triggers.update().values(tick_ns=tx.now_ns + 10**12))
    assert broker.post(schedule, data=b"{}", headers=BROUGHT).status_code == 202
    with stand.database.read() as tx:
        assert tx.all(sa.select(tables.events.c.id)) == []
