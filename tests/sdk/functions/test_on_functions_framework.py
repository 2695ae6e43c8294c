"""trainlet as a function of functions-framework, through the real one. `make test-functions` has it installed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

framework = pytest.importorskip("functions_framework")
MAIN = "from trainlet.handlers import cloud_event\n"
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "1",
    "ce-source": "s3://digits-raw",
    "ce-type": "com.example.created",
    "ce-time": "2026-01-01T00:00:00Z",
    "ce-subject": "images/1 100%.png",
    "content-type": "application/json",
}


@pytest.fixture
def function(api: Any, tmp_path: Path) -> Any:
    (tmp_path / "main.py").write_text(MAIN)
    made = framework.create_app("cloud_event", str(tmp_path / "main.py"), "cloudevent")
    made.config["PROPAGATE_EXCEPTIONS"] = False
    return made.test_client()


def test_an_event_in_either_mode_comes_to_the_api_as_it_is(function: Any, api: Any) -> None:
    headers = {**BINARY, "ce-subject": "images/1 100%25.png"}
    assert function.post("/", data=json.dumps({"uri": "a", "rows": [1, 2.5, None]}), headers=headers).status_code == 200
    form = {name[3:]: value for name, value in BINARY.items() if name.startswith("ce-")}
    structured = {**form, "id": "2", "data": {"uri": "b"}, "trainletchain": "first"}
    media = {"content-type": "application/cloudevents+json"}
    assert function.post("/", data=json.dumps(structured), headers=media).status_code == 200
    first, second = api.events
    assert first["data"] == {"uri": "a", "rows": [1, 2.5, None]} and first["time"] == "2026-01-01T00:00:00Z"
    assert second["data"] == {"uri": "b"} and second["trainletchain"] == "first"
    assert api.tokens == {"Bearer tl_of-the-function"}


def test_data_that_is_no_json_is_kept(function: Any, api: Any) -> None:
    for event_id, media, data in (("1", "text/plain", b"hello"), ("2", "image/png", b"\x89PNG\xff\x00")):
        headers = {**BINARY, "ce-id": event_id, "content-type": media}
        assert function.post("/", data=data, headers=headers).status_code == 200
    text, image = api.events
    assert text["data"] == "hello"
    assert base64.b64decode(image["data_base64"]) == b"\x89PNG\xff\x00"


@pytest.mark.parametrize("status", [422, 403])
def test_T4_an_event_that_was_not_taken_is_not_acknowledged(function: Any, api: Any, status: int) -> None:
    api.status = status
    assert function.post("/", data="{}", headers=BINARY).status_code == 500
    assert api.events == []
