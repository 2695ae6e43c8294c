"""`/v1/billing`: who may read and close what, and that a stream of rows says when it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainlet.core.bills import Row
from trainlet.core.sums import Sums
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering


@pytest.fixture
def used(stand: Any) -> None:
    """Let two projects use a device in January 2026 and now."""
    with stand.database.write() as tx:
        now_ns = tx.now_ns - tx.now_ns % 10**9 - 3600 * 10**9
        for project in ("p", "q"):
            for number, anchor_ns in enumerate((1_767_225_600 * 10**9, now_ns)):
                event = LeaseEvent(
                    id=f"{project}{number}", kind="close", lease=f"{project}{number}", seq=1, task=f"{project}.train",
                    epoch=1, run_id=project, function="train", device=Device(uuid=f"GPU-{project}", sku="L4", index=0),
                    anchor_ns=anchor_ns, elapsed_ns=60 * 10**9, tags={"odd": "a\u2028b\x85c"},
                )  # fmt: skip
                metering.ingest(tx, project, [event])


@pytest.fixture
def admin(stand: Any, person: Any, http: Any) -> Any:
    """Return who calls as an admin."""
    return type(person)(http, stand.token("admin"))


def lines(answer: Any) -> list[Any]:
    """Return the lines of a stream as data."""
    return [json.loads(line) for line in answer.get_data().split(b"\n") if line]


def test_a_project_sees_its_own_rows_and_the_end_proves_that_they_are_all(person: Any, used: None) -> None:
    answer = person("GET", "/v1/billing/rows?period=2026-01")
    assert (answer.status_code, answer.content_type) == (200, "application/x-ndjson")
    head, *rows, end = lines(answer)
    assert (head["period"], head["state"], head["scope"]) == ("2026-01", "open", "p")
    sums = Sums()
    for row in rows:
        sums.add(Row.read(row))
    assert [row["project"] for row in rows] == ["p"] and rows[0]["tags"] == {"odd": "a\u2028b\x85c"}
    assert end == {"rows": sums.rows, "cost_nano": sums.cost_nano, "digest": sums.digest}


def test_without_a_period_it_is_the_one_that_goes_on(person: Any, used: None) -> None:
    head, *_ = lines(person("GET", "/v1/billing/rows"))
    assert head["state"] == "open" and head["as_of"].startswith(head["period"])


@pytest.mark.parametrize(
    "path", ["/v1/billing/rows?project=q", "/v1/billing/rows?project=*", "/v1/billing/periods?project=*"]
)
def test_S2_another_project_is_for_admins_only(person: Any, admin: Any, used: None, path: str) -> None:
    assert person("GET", path).status_code == 403
    assert admin("GET", path).status_code == 200


def test_S2_only_an_admin_closes_a_period_and_a_project_sees_its_own_invoice(
    person: Any, admin: Any, used: None
) -> None:
    assert person("POST", "/v1/billing/periods/2026-01:close", {}).status_code == 403
    closed = admin("POST", "/v1/billing/periods/2026-01:close", {})
    assert (closed.status_code, closed.json["state"]) == (200, "closed")
    assert admin("POST", "/v1/billing/periods/2026-01:close", {}).json == closed.json
    assert [invoice["project"] for invoice in closed.json["invoices"]] == ["p", "q"]
    seen = {item["period"]: item for item in person("GET", "/v1/billing/periods").json["items"]}
    assert [invoice["project"] for invoice in seen["2026-01"]["invoices"]] == ["p"]
    assert seen["2026-01"]["digest"] == closed.json["digest"]
    head, *rows, _ = lines(person("GET", "/v1/billing/rows?period=2026-01"))
    assert head["digest"] == closed.json["digest"]
    assert sum(row["cost_nano"] for row in rows) == seen["2026-01"]["invoices"][0]["payable_nano"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/billing/rows?period=July", 422, "such as 2026-07"),
        ("/v1/billing/rows?period=9000-01", 422, "has not begun"),
        ("/v1/billing/rows?project=%00", 422, "is no project"),
        ("/v1/billing/periods?project=%00", 422, "is no project"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(admin: Any, path: str, status: int, said: str) -> None:
    answer = admin("GET", path)
    assert answer.status_code == status and said in answer.json["detail"], answer.json


@pytest.mark.parametrize(
    ("period", "said"), [("9000-01", "goes on until"), ("2026-13", "such as 2026-07"), ("2025-01", "Nothing was used")]
)
def test_a_period_that_cannot_be_closed_is_told_why(admin: Any, used: None, period: str, said: str) -> None:
    answer = admin("POST", f"/v1/billing/periods/{period}:close", {})
    assert 400 <= answer.status_code < 500 and said in answer.json["detail"], answer.json


def test_an_unknown_field_of_a_close_is_named(admin: Any, used: None) -> None:
    answer = admin("POST", "/v1/billing/periods/2026-01:close", {"unprised": True})
    assert answer.status_code == 422 and "unprised" in answer.json["detail"]
