"""What a broker gave up on comes back, with its signature as its ticket; and who makes tokens."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from trainlet.core import envelopes
from trainlet_functions.relay import Relay
from trainlet_functions.state import schema


def letter(stand: Any, task: str) -> tuple[dict[str, str], bytes]:
    """Return the wake-up of a task as a broker sends it to its dead letter sink."""
    relay = Relay(stand.database, None, stand.signer)  # type: ignore[arg-type]
    with stand.database.read() as tx:
        table = schema.outbox
        row = tx.one(sa.select(table).where((table.c.task == task) & table.c.function.is_not(None)))
    headers, body = relay.event(row)
    relay.close()
    return {**headers, "ce-knativeerrorcode": "503", "ce-knativeerrordest": "f"}, body


def test_T4_a_dead_letter_is_seen_at_its_task(stand: Any, http: Any, person: Any, task: str) -> None:
    headers, body = letter(stand, task)
    answer = http.post("/v1/dead-letters", data=body, headers=headers)
    assert (answer.status_code, answer.data) == (202, b"")
    assert "the worker answered 503" in person("GET", f"/v1/tasks/{task}").json["reason"]
    with stand.database.read() as tx:
        dead = sa.select(sa.func.count()).where(schema.outbox.c.dead_ns.is_not(None))
        assert tx.conn.execute(dead).scalar_one() == 1


def test_a_dead_letter_that_the_api_did_not_sign_is_refused(stand: Any, http: Any, person: Any, task: str) -> None:
    headers, body = letter(stand, task)
    before = person("GET", f"/v1/tasks/{task}").json["reason"]
    for changed, sent in (({**headers, f"ce-{envelopes.SIGNATURE}": "A" * 86}, body), (headers, body + b" ")):
        assert http.post("/v1/dead-letters", data=sent, headers=changed).status_code == 403
    assert http.post("/v1/dead-letters", data=b"nothing").status_code == 403
    assert person("GET", f"/v1/tasks/{task}").json["reason"] == before


def test_only_an_admin_makes_tokens(stand: Any, http: Any, person: Any) -> None:
    body = {"project": "vision", "label": "ci"}
    assert person("POST", "/v1/tokens", body).status_code == 403
    admin = {"Authorization": f"Bearer {stand.token('admin', 'client')}"}
    made = http.post("/v1/tokens", json=body, headers=admin)
    assert made.status_code == 201
    theirs = {"Authorization": f"Bearer {made.json['token']}"}
    assert http.get("/v1", headers=theirs).json["project"] == "vision"
    assert http.post("/v1/tokens", json=body, headers=theirs).status_code == 403
    assert http.post("/v1/tokens", json={**body, "project": "No Label"}, headers=admin).status_code == 422
