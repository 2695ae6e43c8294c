"""`/v1/hooks` and where their senders post to: whoever has the secret brings events in, and nobody else does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from trainlet.core.clocks import ManualClock

PUSH = {"ref": "refs/heads/main", "repository": {"html_url": "https://github.com/a/b"}}
MODEL = {
    "entity": "model_version",
    "action": "created",
    "timestamp": "2026-01-01T00:00:00Z",
    "data": {"name": "digits"},
}
ALERT = {"status": "firing", "labels": {"alertname": "Drift"}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f"}
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}}
Send = Callable[..., Any]


def signed(*parts: bytes, key: bytes) -> bytes:
    return hmac.new(key, b".".join(parts), hashlib.sha256).digest()


def github(secret: str, body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + signed(body, key=secret.encode()).hex(), "X-GitHub-Event": "push"}


def mlflow(secret: str, body: bytes, at: int | None = None) -> dict[str, str]:
    stamp = str(int(time.time()) if at is None else at)
    code = base64.b64encode(signed(b"delivery", stamp.encode(), body, key=secret.encode())).decode()
    names = {"X-MLflow-Delivery-Id": "delivery", "X-MLflow-Timestamp": stamp}
    return {**names, "X-MLflow-Signature": f"v1,{code}"}


def standard(secret: str, body: bytes, at: int | None = None) -> dict[str, str]:
    stamp, key = str(int(time.time()) if at is None else at), base64.b64decode(secret.removeprefix("whsec_"))
    code = base64.b64encode(signed(b"msg_1", stamp.encode(), body, key=key)).decode()
    names = {"Webhook-Id": "msg_1", "Webhook-Timestamp": stamp, "Content-Type": "application/cloudevents+json"}
    return {**names, "Webhook-Signature": f"v1,{base64.b64encode(b'of another key').decode()} v1,{code}"}


def bearer(secret: str, body: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def basic(secret: str, body: bytes) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"any:{secret}".encode()).decode()}


CASES = [
    pytest.param("github", "hmac", PUSH, github, id="github"),
    pytest.param("mlflow", "mlflow", MODEL, mlflow, id="mlflow"),
    pytest.param("cloudevents", "standard", EVENT, standard, id="standard"),
    pytest.param("alertmanager", "bearer", {"receiver": "r", "alerts": [ALERT]}, bearer, id="bearer"),
    pytest.param("alertmanager", "bearer", {"receiver": "r", "alerts": [ALERT]}, basic, id="basic"),
]


def post(http: Any, path: str, form: Any, headers: dict[str, str]) -> Any:
    return http.post(path, data=json.dumps(form), headers={"Content-Type": "application/json", **headers})


@pytest.mark.parametrize(("adapter", "scheme", "form", "sign"), CASES)
def test_a_sender_with_the_secret_brings_its_event_in_once(
    person: Any, http: Any, adapter: str, scheme: str, form: Any, sign: Any
) -> None:
    made = person("POST", "/v1/hooks", {"adapter": adapter})
    assert (made.status_code, made.json["hook"]["scheme"]) == (201, scheme)
    body = json.dumps(form).encode()
    headers = sign(made.json["secret"], body)
    answers = [post(http, made.json["path"], form, headers) for _ in range(2)]
    assert [(answer.status_code, answer.json["new"]) for answer in answers] == [(202, 1), (202, 0)]
    assert len(person("GET", "/v1/events").json["items"]) == 1
    assert person("GET", "/v1/hooks").json["items"][0]["last_used_at"] is not None


@pytest.mark.parametrize(("adapter", "scheme", "form", "sign"), CASES)
def test_S2_without_the_secret_nothing_comes_in(
    person: Any, http: Any, adapter: str, scheme: str, form: Any, sign: Any
) -> None:
    made = person("POST", "/v1/hooks", {"adapter": adapter}).json
    body = json.dumps(form).encode()
    other = base64.b64encode(b"x" * 32).decode()
    good = sign(made["secret"], body)
    wrong = sign(("whsec_" if scheme == "standard" else "tlh_") + other, body)
    changed = {**form, "more": 1}
    attempts = [
        (form, wrong),
        (form, {}),
        ({**form}, {**good, "Authorization": "Bearer x"} if scheme == "bearer" else wrong),
    ]
    if scheme != "bearer":
        attempts.append((changed, good))
    for sent, headers in attempts:
        answer = post(http, made["path"], sent, headers)
        assert answer.status_code == 401, headers
        assert "hook" in answer.json["detail"] and made["secret"] not in answer.json["detail"]
    assert person("GET", "/v1/events").json["items"] == []


@pytest.mark.parametrize("sign", [mlflow, standard])
@pytest.mark.parametrize("off_s", [-310, 600])
def test_what_was_signed_long_ago_or_in_the_future_is_refused(person: Any, http: Any, sign: Any, off_s: int) -> None:
    adapter, form = ("mlflow", MODEL) if sign is mlflow else ("cloudevents", EVENT)
    made = person("POST", "/v1/hooks", {"adapter": adapter}).json
    at = int(time.time()) + off_s
    answer = post(http, made["path"], form, sign(made["secret"], json.dumps(form).encode(), at))
    assert answer.status_code == 401 and "clock" in answer.json["detail"]


def test_a_sender_that_has_nothing_but_a_url_has_the_secret_in_it(person: Any, http: Any) -> None:
    made = person("POST", "/v1/hooks", {"adapter": "alertmanager", "scheme": "url"}).json
    form = {"receiver": "r", "alerts": [ALERT]}
    assert post(http, made["path"], form, {}).status_code == 202
    assert post(http, made["hook"]["path"], form, {}).status_code == 401
    assert post(http, made["hook"]["path"] + "/tlh_guessed", form, {}).status_code == 401
    assert made["secret"] not in json.dumps(person("GET", "/v1/hooks").json)


def test_a_secret_before_is_good_for_its_grace_and_no_longer(stand: Any, person: Any, http: Any) -> None:
    clock = stand.database.clock = ManualClock()
    body = json.dumps(PUSH).encode()
    secrets = [person("POST", "/v1/hooks", {"adapter": "github"}).json["secret"]]
    for _ in range(2):
        answer = person("POST", "/v1/hooks/github/hmac:rotate", {"grace_s": 60})
        secrets.append(answer.json["secret"])
    path = answer.json["path"]

    def good() -> list[bool]:
        return [post(http, path, PUSH, github(secret, body)).status_code == 202 for secret in secrets]

    assert good() == [False, True, True]
    clock.advance(61)
    assert good() == [False, False, True]
    person("POST", "/v1/hooks/github/hmac:rotate", {"grace_s": 0})
    assert good() == [False, False, False]


def test_a_hook_that_is_made_again_has_another_secret(person: Any, http: Any) -> None:
    first = person("POST", "/v1/hooks", {"adapter": "github"}).json
    assert person("POST", "/v1/hooks", {"adapter": "github"}).status_code == 409
    assert person("DELETE", "/v1/hooks/github/hmac").status_code == 200
    assert person("GET", "/v1/hooks").json["items"] == []
    assert post(http, first["path"], PUSH, github(first["secret"], json.dumps(PUSH).encode())).status_code == 401
    again = person("POST", "/v1/hooks", {"adapter": "github"}).json
    assert again["secret"] != first["secret"]
    assert post(http, first["path"], PUSH, github(first["secret"], json.dumps(PUSH).encode())).status_code == 401


def test_S2_a_hook_belongs_to_its_project(stand: Any, person: Any, http: Any) -> None:
    made = person("POST", "/v1/hooks", {"adapter": "github"}).json
    elsewhere = made["path"].replace("/projects/p/", "/projects/q/")
    refused = post(http, elsewhere, PUSH, github(made["secret"], json.dumps(PUSH).encode()))
    assert refused.status_code == 401
    other = {"Authorization": f"Bearer {stand.token('client', project='q')}"}
    assert http.get("/v1/hooks", headers=other).json["items"] == []
    assert http.delete("/v1/hooks/github/hmac", headers=other).status_code == 404


def test_a_hook_takes_events_of_its_sources_only(person: Any, http: Any) -> None:
    asked = {"adapter": "github", "sources": ["https://github.com/a/*"]}
    made = person("POST", "/v1/hooks", asked).json
    other = {**PUSH, "repository": {"html_url": "https://github.com/c/d"}}
    answers = [
        post(http, made["path"], form, github(made["secret"], json.dumps(form).encode())) for form in (PUSH, other)
    ]
    assert [answer.status_code for answer in answers] == [202, 403]
    assert "https://github.com/a/*" in answers[1].json["detail"]


@pytest.mark.parametrize(
    "asked",
    [{"adapter": "githup"}, {"adapter": "github", "scheme": "none"}, {"adapter": "github", "sources": ["a*b"]}, {}],
)
def test_a_hook_that_could_not_work_is_refused(person: Any, asked: dict[str, Any]) -> None:
    answer = person("POST", "/v1/hooks", asked)
    assert answer.status_code == 422 and answer.json["detail"]
    assert person("GET", "/v1/hooks").json["items"] == []
