"""trainlet as a function of knative/func, through its real server's application."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from trainlet import handlers
from trainlet.core.errors import UserError

server = pytest.importorskip("func_python.cloudevent")
EVENT = {"specversion": "1.0", "id": "1", "source": "s3://digits-raw", "type": "com.example.created"}


def call(application: Any, path: str = "/", body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Make one request of an ASGI application."""
    sent: list[dict[str, Any]] = []
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": named}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


def binary(event_id: str) -> dict[str, str]:
    found = {f"ce_{name}": value for name, value in {**EVENT, "id": event_id}.items()}
    return {**found, "ce_time": "2026-01-01T00:00:00Z", "content_type": "application/json"}


@pytest.fixture
def function(api: Any) -> Any:
    return server.ASGIApplication(handlers.new())


def test_an_event_in_either_mode_is_brought_to_the_api_and_answered_without_a_body(function: Any, api: Any) -> None:
    assert call(function, body=b'{"uri": "a"}', **binary("1")) == (202, b"")
    structured = json.dumps({**EVENT, "id": "2", "data": {"uri": "b"}}).encode()
    assert call(function, body=structured, content_type="application/cloudevents+json") == (202, b"")
    assert [one["data"] for one in api.events] == [{"uri": "a"}, {"uri": "b"}]
    assert api.events[0]["time"] == "2026-01-01T00:00:00Z"


def test_without_the_middleware_for_events_the_request_itself_is_read(api: Any) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await handlers.new().handle(scope, receive, send)

    assert call(application, body=b'{"uri": "a"}', **binary("1")) == (202, b"")
    assert call(application, body=b"{}") == (422, b"the event is no CloudEvent 1.0: specversion is None, not '1.0'.")
    assert [one["data"] for one in api.events] == [{"uri": "a"}]


def test_T4_a_sender_learns_whether_it_is_worth_coming_again(function: Any, api: Any) -> None:
    api.status = 422
    assert call(function, body=b"{}", **binary("1"))[0] == 422
    api.status = 202
    assert call(function, body=b"{}", **binary("1"))[0] == 202


def test_health_says_whether_the_api_is_there(function: Any, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(function, "/health/liveness") == (200, b"OK")
    assert call(function, "/health/readiness") == (200, b"OK")
    monkeypatch.setenv("TRAINLET_API", "http://127.0.0.1:9")
    assert call(function, "/health/liveness")[0] == 200
    assert call(function, "/health/readiness")[0] == 500


def test_a_start_without_an_api_says_what_is_missing() -> None:
    with pytest.raises(UserError, match="Set TRAINLET_API and TRAINLET_TOKEN"):
        handlers.new().start({})
