"""Schemathesis: whatever fits the description, and much that does not, never breaks the API."""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from schemathesis.checks import not_a_server_error

from trainlet_functions.api.app import create_app


def test_no_request_breaks_the_api(stand: Any) -> None:
    described = schemathesis.openapi.from_wsgi("/openapi.json", create_app(stand))
    token = stand.token("client")
    operations = [result.ok() for result in described.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=8,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            derandomize=True,
            database=None,
        )
        def once(case: Any) -> None:
            answer = case.call(headers={"Authorization": f"Bearer {token}"})
            case.validate_response(answer, checks=(not_a_server_error,))

        once()


def test_a_number_that_no_database_can_hold_is_the_callers_mistake(stand: Any) -> None:
    headers = {"Authorization": f"Bearer {stand.token('client')}"}
    client = create_app(stand).test_client()
    for number in (2**63, -(2**63) - 1):
        answer = client.get(f"/v1/events?cursor={number}", headers=headers)
        assert (answer.status_code, "out of range" in answer.text) == (422, True), answer.text
