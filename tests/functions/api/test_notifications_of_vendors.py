"""`POST /v1/events/{adapter}`: what a store or a monitor sends is taken in once, as the caller's project."""

from __future__ import annotations

from typing import Any

ALERT = {"status": "firing", "labels": {"alertname": "Drift"}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f"}


def webhook(summary: str) -> dict[str, Any]:
    return {"receiver": "trainlet", "alerts": [{**ALERT, "annotations": {"summary": summary}}]}


def test_T5_a_notification_that_is_repeated_in_other_words_is_taken_once(person: Any) -> None:
    first = person("POST", "/v1/events/alertmanager", webhook("0.31"))
    again = person("POST", "/v1/events/alertmanager", webhook("0.37"))
    assert (first.status_code, first.json["new"]) == (202, 1)
    assert (again.status_code, again.json["new"], again.json["items"]) == (202, 0, first.json["items"])
    (event,) = person("GET", "/v1/events").json["items"]
    assert event["type"] == "io.prometheus.alertmanager.alert.firing"


def test_S2_a_notification_belongs_to_the_project_of_its_token(stand: Any, http: Any, person: Any) -> None:
    other = {"Authorization": f"Bearer {stand.token('client', project='other')}"}
    assert http.post("/v1/events/alertmanager", json=webhook("x"), headers=other).json["new"] == 1
    assert person("GET", "/v1/events").json["items"] == []
    assert http.post("/v1/events/alertmanager", json=webhook("x")).status_code == 401


def test_an_unknown_adapter_and_a_wrong_body_are_told(person: Any) -> None:
    unknown = person("POST", "/v1/events/alertmanger", {})
    assert unknown.status_code == 404 and "alertmanager" in unknown.json["detail"]
    wrong = person("POST", "/v1/events/s3", {"Records": [{}]})
    assert wrong.status_code == 422 and "record 0: eventName" in wrong.json["detail"]


def test_replaying_an_event_is_no_adapter(person: Any) -> None:
    person("POST", "/v1/events/alertmanager", webhook("x"))
    (event,) = person("GET", "/v1/events").json["items"]
    assert person("POST", f"/v1/events/{event['number']}:replay", {}).status_code == 200


def test_numbers_and_texts_that_cannot_be_written_again_are_refused(http: Any, person: Any) -> None:
    base = b'{"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data": %s}'
    headers = {**person.headers, "Content-Type": "application/cloudevents+json"}
    for data in (b"1e999", b'"\\ud800"'):
        for path, body in (("/v1/events", base % data), ("/v1/events/github", b'{"ref": %s}' % data)):
            answer = http.post(path, data=body, headers={**headers, "X-GitHub-Event": "push"})
            assert answer.status_code == 422, (path, data, answer.data)
