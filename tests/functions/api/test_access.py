"""Tokens are good for what they were made for, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest


def claim(worker: Any, key: str, nonce: str = "n") -> Any:
    return worker("POST", f"/v1/attempts/{key}/1:claim", {"worker": "w", "nonce": nonce})


def as_attempt(worker: Any, token: str) -> Any:
    return lambda path, body: worker._http.post(path, json=body, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("path", ["/v1", "/v1/runs", "/v1/functions", "/v1/tasks/r.f", "/v1/usage", "/v1/runs/r/logs"])
def test_without_a_token_nothing_is_told(http: Any, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.mimetype == "application/problem+json"


def test_S2_another_project_sees_nothing(stand: Any, http: Any, task: str, person: Any) -> None:
    token = {"Authorization": f"Bearer {stand.token('client', project='other')}"}
    for path in (f"/v1/tasks/{task}", "/v1/runs/r", "/v1/runs/r/logs", f"/v1/tasks/{task}/timeline"):
        assert http.get(path, headers=token).status_code == 404
        assert person("GET", path).status_code == 200
    assert http.get("/v1/runs", headers=token).json["items"] == []
    assert http.post(f"/v1/tasks/{task}:cancel", json={}, headers=token).status_code == 404


def test_S2_a_token_never_stands_in_the_location(stand: Any, http: Any) -> None:
    token = stand.token("client")
    answer = http.get(f"/?token={token}")
    assert answer.status_code == 303
    assert token not in answer.headers["Location"]
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie


def test_a_client_cannot_claim_and_a_worker_cannot_list(person: Any, worker: Any, task: str) -> None:
    assert claim(person, task).status_code == 403
    assert worker("GET", "/v1/runs").status_code == 403


def test_a_worker_of_another_function_cannot_claim(stand: Any, http: Any, task: str) -> None:
    token = stand.token("worker:g")
    answer = http.post(
        f"/v1/attempts/{task}/1:claim",
        json={"worker": "w", "nonce": "n"},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 403


def test_an_attempt_token_is_good_for_its_attempt_only(worker: Any, person: Any, function: Any, task: str) -> None:
    body = {"run_id": "r", "node": "g", "function": "f", "digest": function.digest()}
    person("PUT", "/v1/tasks/r.g", body)
    call = as_attempt(worker, claim(worker, task).json["token"])
    assert call(f"/v1/attempts/{task}/1:heartbeat", {"worker": "w"}).status_code == 200
    assert call("/v1/attempts/r.g/1:heartbeat", {"worker": "w"}).status_code == 403
    assert worker._http.get("/v1/runs", headers={"Authorization": "Bearer tla_wrong"}).status_code == 401


def test_T5_the_same_claim_again_gets_the_same_attempt(worker: Any, task: str) -> None:
    first, again = claim(worker, task, "n1"), claim(worker, task, "n1")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json["epoch"] == again.json["epoch"] == 1
    other = claim(worker, task, "n2")
    assert other.status_code == 409
    assert other.json["type"] == "urn:trainlet:problem:taken"


def test_T2_a_superseded_attempt_is_told_to_stop(worker: Any, person: Any, task: str) -> None:
    token = claim(worker, task).json["token"]
    call = as_attempt(worker, token)
    call(f"/v1/attempts/{task}/1:finish", {"worker": "w", "outcome": "preempted"})
    late = call(f"/v1/attempts/{task}/1:heartbeat", {"worker": "w"})
    assert late.status_code == 409
    assert late.json["type"] == "urn:trainlet:problem:fenced"
    assert person("GET", f"/v1/tasks/{task}").json["epoch"] == 2


def test_T5_a_finish_that_is_repeated_changes_nothing(worker: Any, person: Any, task: str) -> None:
    call = as_attempt(worker, claim(worker, task).json["token"])
    finish = {"worker": "w", "outcome": "succeeded", "output": 42}
    assert call(f"/v1/attempts/{task}/1:finish", finish).status_code == 200
    before = person("GET", f"/v1/tasks/{task}").json
    assert call(f"/v1/attempts/{task}/1:finish", finish).status_code == 200
    assert person("GET", f"/v1/tasks/{task}").json == before
    assert before["output"] == 42


def test_T5_log_lines_that_are_sent_again_are_shown_once(worker: Any, person: Any, task: str) -> None:
    call = as_attempt(worker, claim(worker, task).json["token"])
    lines = [[1, "stdout", "a"], [2, "stdout", "b"]]
    for _ in range(2):
        answer = call(f"/v1/attempts/{task}/1:logs", {"offset": 0, "lines": lines})
        assert answer.json == {"next_offset": 2}
    call(f"/v1/attempts/{task}/1:logs", {"offset": 1, "lines": [[2, "stdout", "b"], [3, "stderr", "c"]]})
    shown = person("GET", "/v1/runs/r/logs").json["items"]
    assert [(line["seq"], line["text"]) for line in shown] == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(("scope", "status"), [("client", 403), ("admin", 422)])
def test_M1_only_an_administrator_brings_usage_in_from_outside(stand: Any, http: Any, scope: str, status: int) -> None:
    event = {"specversion": "1.0", "type": "dev.trainlet.lease.close", "source": "other", "id": "1", "data": {}}
    headers = {"Authorization": f"Bearer {stand.token(scope)}", "Content-Type": "application/cloudevents+json"}
    assert http.post("/v1/events", data=json.dumps(event), headers=headers).status_code == status
