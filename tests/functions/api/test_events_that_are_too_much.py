"""What is too large or too much is refused in words, and nothing of it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainlet.core.triggers import MAX_WAITING
from trainlet_functions.triggers import tables

TEN_MB = "x" * 10_000_000
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
ALERT = {"status": "firing", "labels": {"text": TEN_MB}, "startsAt": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/events", json.dumps({**EVENT, "data": TEN_MB}), {"Content-Type": "application/cloudevents+json"}),
        (
            "/v1/events",
            json.dumps({**EVENT, "data": {"a": [TEN_MB]}}),
            {"Content-Type": "application/cloudevents+json"},
        ),
        ("/v1/events", json.dumps([{**EVENT, "data": TEN_MB}]), {"Content-Type": "application/cloudevents-batch+json"}),
        ("/v1/events", TEN_MB, {**BINARY, "Content-Type": "text/plain"}),
        ("/v1/events/alertmanager", json.dumps({"receiver": "r", "alerts": [ALERT]}), {}),
    ],
)
def test_ten_megabytes_are_refused_with_what_to_do(
    http: Any, person: Any, path: str, body: str, headers: dict[str, str]
) -> None:
    answer = http.post(path, data=body, headers={**person.headers, **headers})
    assert answer.status_code == 422
    assert "at most 1048576" in answer.json["detail"] and "store" in answer.json["detail"]
    assert person("GET", "/v1/events").json["items"] == []


def test_what_is_larger_than_any_body_may_be_is_refused_before_it_is_read(http: Any, person: Any) -> None:
    answer = http.post("/v1/events", data=b"x" * (17 * 2**20), headers={**person.headers, **BINARY})
    assert answer.status_code == 413


def test_a_batch_with_one_bad_event_names_it_and_keeps_none(person: Any) -> None:
    media = {"Content_Type": "application/cloudevents-batch+json"}
    answer = person("POST", "/v1/events", [EVENT, {**EVENT, "id": "2"}, {**EVENT, "id": ""}], **media)
    assert answer.status_code == 422 and "event 2 of the batch" in answer.json["detail"]
    assert person("GET", "/v1/events").json["items"] == []
    answer = person("POST", "/v1/events", [{**EVENT, "id": str(number)} for number in range(1001)], **media)
    assert answer.status_code == 422 and "at most 1000" in answer.json["detail"]


def test_a_storm_is_told_to_come_again_and_its_events_are_taken_later(stand: Any, person: Any, function: Any) -> None:
    node = {"id": "f", "function": "f", "digest": function.digest()}
    node["inputs"] = {"x": {"kind": "parameter", "name": "x"}}
    subscription = {
        "program": {"pipeline": "e", "graph": {"name": "e", "required": ["x"], "nodes": [node]}},
        "filters": [{"exact": {"type": "t"}}],
        "params": {"x": {"path": "$.id"}},
        "flow": {"window_s": 60, "max_batch": 100},
    }
    assert person("PUT", "/v1/subscriptions/e", subscription).status_code == 200
    with stand.database.write() as tx:
        tx.run(tables.triggers.update().values(waiting=MAX_WAITING))
    media = {"Content_Type": "application/cloudevents+json"}
    answer = person("POST", "/v1/events", EVENT, **media)
    assert answer.status_code == 429 and "wait for e already" in answer.json["detail"]
    assert person("GET", "/v1/events").json["items"] == []
    with stand.database.write() as tx:
        tx.run(tables.triggers.update().values(waiting=0))
    assert person("POST", "/v1/events", EVENT, **media).json == {"items": ["1"], "new": 1, "matched": 1}
