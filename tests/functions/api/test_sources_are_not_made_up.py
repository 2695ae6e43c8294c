"""Nobody outside speaks as the platform, and a project's administrator may say which sources it uses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainlet.core.triggers import Program

STRUCTURED = {"Content_Type": "application/cloudevents+json"}


def event(source: str, kind: str = "t") -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": source, "type": kind}


@pytest.mark.parametrize(
    "given",
    [
        event("/projects/p/schedules/nightly", "anything"),
        event("/projects/p", "dev.trainlet.run.succeeded"),
        event("elsewhere", "dev.trainlet.object.created"),
        event("elsewhere", "dev.trainlet.schedule.due"),
    ],
)
def test_S1_an_event_that_says_it_is_the_platforms_own_is_refused(
    person: Any, http: Any, given: dict[str, Any]
) -> None:
    batch = {"Content_Type": "application/cloudevents-batch+json"}
    answers = [
        person("POST", "/v1/events", given, **STRUCTURED),
        person("POST", "/v1/events", [event("mine"), given], **batch),
    ]
    for answer in answers:
        assert answer.status_code == 403 and "reserved" in answer.json["detail"]
    assert person("GET", "/v1/events").json["items"] == []


def test_S1_a_vendors_message_cannot_say_so_either(person: Any) -> None:
    push = {"ref": "r", "repository": {"html_url": "/projects/p"}}
    answer = person("POST", "/v1/events/github", push, X_GitHub_Event="push")
    assert answer.status_code == 403 and "reserved" in answer.json["detail"]


def test_a_source_that_the_project_may_not_use_is_refused(person: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLET_EVENT_SOURCES", "q=*; p = s3://mine-*, github")
    allowed = [person("POST", "/v1/events", event(source), **STRUCTURED) for source in ("s3://mine-1", "github")]
    assert [answer.status_code for answer in allowed] == [202, 202]
    for source in ("s3://other", "github/x", "s3://mine"):
        answer = person("POST", "/v1/events", event(source), **STRUCTURED)
        assert answer.status_code == 403 and "s3://mine-*" in answer.json["detail"]
    monkeypatch.setenv("TRAINLET_EVENT_SOURCES", "q=*")
    assert person("POST", "/v1/events", event("s3://other"), **STRUCTURED).status_code == 202


def test_a_subscription_to_a_source_that_the_project_may_not_use_is_refused(
    person: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_EVENT_SOURCES", "p=s3://mine")
    body = {"program": json.loads(Program(pipeline="x", graph={"name": "x", "nodes": []}).model_dump_json())}
    body["filters"] = [{"exact": {"source": "s3://other"}}]
    answer = person("PUT", "/v1/subscriptions/x", body)
    assert answer.status_code == 403 and "TRAINLET_EVENT_SOURCES" in answer.json["detail"]


def test_a_token_for_events_brings_them_in_and_does_nothing_else(stand: Any, http: Any) -> None:
    admin = {"Authorization": f"Bearer {stand.token('admin', 'client')}"}
    asked = {"project": "p", "label": "a sender", "events": True}
    assert http.post("/v1/tokens", json={**asked, "admin": True}, headers=admin).status_code == 422
    token = http.post("/v1/tokens", json=asked, headers=admin).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    sent = http.post(
        "/v1/events", json=event("mine"), headers={**headers, "Content-Type": "application/cloudevents+json"}
    )
    assert sent.status_code == 202
    for path in ("/v1/events", "/v1/runs", "/v1/hooks"):
        assert http.get(path, headers=headers).status_code == 403


def test_a_broker_gets_an_empty_answer_which_it_cannot_take_for_a_reply_event(person: Any) -> None:
    alert = {"status": "firing", "labels": {}, "startsAt": "2026-01-01T00:00:00Z"}
    sent = [
        person("POST", "/v1/events", event("mine"), Prefer="reply", **STRUCTURED),
        person("POST", "/v1/events/alertmanager", {"receiver": "r", "alerts": [alert]}, Prefer="reply"),
    ]
    for answer in sent:
        assert (answer.status_code, answer.data, answer.headers.get("Content-Type")) == (202, b"", None)
    assert len(person("GET", "/v1/events").json["items"]) == 2
