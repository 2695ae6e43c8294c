"""Requests are checked at the edge: what is wrong is named, and nothing is lost."""

from __future__ import annotations

import json
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


def test_S1_a_function_without_its_bundle_is_refused(person: Any) -> None:
    body = {"name": "f", "bundle": "0" * 64, "entry": {"module": "m", "qualname": "f"}}
    answer = person("PUT", "/v1/functions/f", body)
    assert answer.status_code == 422
    assert "has no bundle" in answer.json["detail"]


def test_S1_a_bundle_with_other_content_than_its_name_is_refused(stand: Any, person: Any) -> None:
    good = stand.bundle()
    stand.store.create("bundles/" + "1" * 64 + ".zip", stand.store.get(f"bundles/{good}.zip"))
    body = {"name": "f", "bundle": "1" * 64, "entry": {"module": "m", "qualname": "f"}}
    answer = person("PUT", "/v1/functions/f", body)
    assert answer.status_code == 422
    assert good[:12] in answer.json["detail"]


def test_S1_a_task_of_an_unregistered_version_is_refused(person: Any, function: Any) -> None:
    body = {"run_id": "r", "node": "f", "function": "f", "digest": "2" * 64}
    assert person("PUT", "/v1/tasks/r.f", body).status_code == 404


def test_the_same_key_attaches_and_another_body_conflicts(person: Any, function: Any, task: str) -> None:
    body = {"run_id": "r", "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    assert person("PUT", f"/v1/tasks/{task}", body).status_code == 200
    answer = person("PUT", f"/v1/tasks/{task}", {**body, "args": {"x": 2}})
    assert answer.status_code == 409
    assert "args" in answer.json["detail"]


def test_an_unknown_field_is_named(person: Any) -> None:
    answer = person("PUT", "/v1/runs/r", {"pipeline": "p", "parms": {}})
    assert answer.status_code == 422
    assert "parms" in answer.json["detail"]


def test_a_body_that_is_too_large_is_refused(stand: Any, person: Any) -> None:
    big = {"pipeline": "x" * (stand.settings.limits.body_bytes + 1)}
    assert person("PUT", "/v1/runs/r", big).status_code == 413


def test_another_protocol_version_is_told_what_to_update(person: Any) -> None:
    answer = person("GET", "/v1", Trainlet_Protocol="99")
    assert answer.status_code == 426
    assert "Update" in answer.json["detail"]
    assert answer.headers["Trainlet-Protocol"] == "1"


def test_an_idempotency_key_makes_one_run_of_two_calls(person: Any, function: Any) -> None:
    first = person("POST", "/v1/functions/f:invoke", {"args": {"x": 1}}, Idempotency_Key="k")
    again = person("POST", "/v1/functions/f:invoke", {"args": {"x": 1}}, Idempotency_Key="k")
    assert first.status_code == 202
    assert first.json["key"] == again.json["key"]
    assert len(person("GET", "/v1/runs").json["items"]) == 1


def test_an_ended_run_streams_its_lines_and_the_end(worker: Any, person: Any, task: str) -> None:
    token = worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    lines = [[1, "stdout", f"line {number}"] for number in range(5)]
    worker._http.post(f"/v1/attempts/{task}/1:logs", json={"offset": 0, "lines": lines}, headers=headers)
    worker._http.post(f"/v1/attempts/{task}/1:finish", json={"worker": "w", "outcome": "succeeded"}, headers=headers)
    stream = person("GET", "/v1/runs/r/logs", Accept="text/event-stream", Last_Event_ID="3").get_data(as_text=True)
    events = [part for part in stream.split("\n\n") if part]
    assert [json.loads(event.split("data: ")[1]).get("seq") for event in events] == [4, 5, None]
    assert events[-1].startswith("event: end")


def test_T5_an_event_that_comes_again_is_harmless_and_a_changed_one_is_refused(person: Any) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}
    structured = {"Content_Type": "application/cloudevents+json"}
    assert person("POST", "/v1/events", event, **structured).json["new"] == 1
    assert person("POST", "/v1/events", event, **structured).json["new"] == 0
    changed = {**event, "data": {"a": 2}}
    assert person("POST", "/v1/events", changed, **structured).status_code == 409
    binary = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/s", "ce_type": "t"}
    assert person("POST", "/v1/events", {"a": 1}, **binary).json["new"] == 0
    batch = person(
        "POST", "/v1/events", [event, {**event, "id": "2"}], Content_Type="application/cloudevents-batch+json"
    )
    assert (batch.status_code, batch.json["new"]) == (202, 1)


def test_what_is_no_event_is_refused(person: Any) -> None:
    answer = person("POST", "/v1/events", {"a": 1})
    assert answer.status_code == 422
    assert "CloudEvent" in answer.json["detail"]


def test_metrics_are_prometheus_text(http: Any, task: str) -> None:
    families = {family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)}
    samples = {(s.labels["project"], s.labels["state"]): s.value for s in families["trainlet_tasks"].samples}
    assert samples == {("p", "dispatched"): 1.0}


def test_openapi_describes_every_route_once(http: Any) -> None:
    document = http.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    operations = [op for path in document["paths"].values() for op in path.values()]
    names = [op["operationId"] for op in operations]
    assert len(names) == len(set(names)) > 25
    assert all(op["summary"] and op["responses"] for op in operations)


def test_the_dashboard_escapes_what_users_name(stand: Any, http: Any, person: Any) -> None:
    person("PUT", "/v1/runs/evil", {"pipeline": "<script>alert(1)</script>"})
    http.get(f"/?token={stand.token('client')}")
    page = http.get("/").text
    assert "evil" in page and "<script>" not in page
    assert http.get("/runs/evil").status_code == 200


def test_T8_the_page_of_a_run_shows_its_newest_lines_and_why_it_failed(
    stand: Any, http: Any, worker: Any, task: str
) -> None:
    token = worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"}).json["token"]
    headers = {"Authorization": f"Bearer {token}"}
    lines = [[1, "stdout", f"line {number}."] for number in range(700)]
    http.post(f"/v1/attempts/{task}/1:logs", json={"offset": 0, "lines": lines}, headers=headers)
    http.get(f"/?token={stand.token('client')}")
    running = http.get("/runs/r").text
    assert "line 699." in running and "line 200." in running and "line 199." not in running
    assert "The last 500 lines" in running and "trainlet logs r" in running
    assert re.search(r"<td>\d+\.\d s</td>", running), "a task that runs shows how long it has been running"
    error = {"kind": "user", "type": "ValueError", "message": "no", "traceback": "Traceback\n  File mine.py, line 7"}
    ending = {"worker": "w", "outcome": "failed", "error": error}
    assert http.post(f"/v1/attempts/{task}/1:finish", json=ending, headers=headers).status_code == 200
    assert "File mine.py, line 7" in http.get("/runs/r").text


def test_links_to_a_checkpoint_need_a_bucket_and_a_task_of_the_project(person: Any, task: str) -> None:
    assert "Name the task" in person("GET", "/v1/checkpoints/links").json["detail"]
    assert person("GET", "/v1/checkpoints/links?task=other.task").status_code == 404
    answer = person("GET", f"/v1/checkpoints/links?task={task}")
    assert answer.status_code == 422 and "is no bucket" in answer.json["detail"]
    assert person("GET", f"/v1/checkpoints/links?task={task}&valid_s=604801").status_code == 422
