"""Schemathesis: whatever fits the description, and much that does not, gets an answer that fits it too."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance

from trainlet_functions.api.app import create_app

CHECKS = (not_a_server_error, content_type_conformance)


@pytest.fixture
def tokens(stand: Any, worker: Any, person: Any, task: str) -> dict[str, str]:
    """Return a token for each kind of caller; the attempt's is of epoch 1 of the task, which runs."""
    with stand.database.write() as tx:
        tx.conn.exec_driver_sql("UPDATE tasks SET state = 'dispatched'")
    claimed = worker("POST", f"/v1/attempts/{task}/1:claim", {"worker": "w", "nonce": "n"})
    assert claimed.status_code == 200, claimed.text
    everything = stand.token("client", "admin", "events", "worker:f")
    return {"person": everything, "worker": stand.token("worker:f"), "attempt": claimed.json["token"]}


def fits(answer: Any, responses: dict[str, Any], components: dict[str, Any]) -> None:
    """Raise when an answer is not as described. Schemathesis's own check cannot read tuples (`prefixItems`)."""
    if answer.status_code < 400:
        assert str(answer.status_code) in responses, answer.status_code
    response = responses.get(str(answer.status_code), responses["default"])
    for media, content in response.get("content", {}).items():
        if "schema" in content and media in answer.headers["content-type"][0]:
            Draft202012Validator({**content["schema"], "components": components}).validate(answer.json())
            return
    assert "content" not in response or not all("schema" in one for one in response["content"].values())


@pytest.mark.parametrize("caller", ["person", "worker", "attempt"])
def test_every_answer_is_one_that_was_described(stand: Any, tokens: dict[str, str], task: str, caller: str) -> None:
    described = schemathesis.openapi.from_wsgi("/openapi.json", create_app(stand))
    known = {"name": "f", "key": task, "task": task, "run_id": "r", "epoch": 1, "dispatcher": "d", "project": "p"}
    operations = [result.ok() for result in described.get_all_operations()]
    assert len(operations) > 70
    if caller == "attempt":
        operations = [one for one in operations if "/attempts/" in one.path]
    if caller == "worker":
        operations = [one for one in operations if ":claim" in one.path]
    assert operations
    for operation in operations:

        @hypothesis.given(case=operation.as_strategy(), real=st.booleans())
        @hypothesis.settings(
            max_examples=8,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            derandomize=True,
            database=None,
        )
        def once(case: Any, real: bool) -> None:
            if real:  # what is there, so that more than "not found" is said
                case.path_parameters = {name: known.get(name, value) for name, value in case.path_parameters.items()}
            if "wait" in case.query:
                case.query["wait"] = 0
            answer = case.call(headers={"Authorization": f"Bearer {tokens[caller]}"})
            case.validate_response(answer, checks=CHECKS)
            fits(answer, case.operation.definition.raw["responses"], described.raw_schema["components"])

        once()


def test_a_number_that_no_database_can_hold_is_the_callers_mistake(stand: Any) -> None:
    headers = {"Authorization": f"Bearer {stand.token('client')}"}
    client = create_app(stand).test_client()
    for number in (2**63, -(2**63) - 1):
        answer = client.get(f"/v1/events?cursor={number}", headers=headers)
        assert (answer.status_code, "out of range" in answer.text) == (422, True), answer.text
