"""What a person sees and does with a browser: the queue, the devices, and the button that stops a run."""

from __future__ import annotations

from typing import Any

import pytest

from trainlet.core.specs import GpuRequest, Resources


@pytest.fixture
def browser(stand: Any, http: Any) -> Any:
    http.get(f"/?token={stand.token('client')}")
    return http


def create(person: Any, function: Any, key: str) -> None:
    body = {"run_id": key.partition(".")[0], "node": "f", "function": "f", "digest": function.digest()}
    assert person("PUT", f"/v1/tasks/{key}", body).status_code == 201


def test_a_run_is_cancelled_by_a_button_that_asks_once(browser: Any, person: Any, task: str) -> None:
    assert 'href="/runs/r/cancel"' in browser.get("/runs/r").text
    asked = browser.get("/runs/r/cancel")
    assert "trainlet resume r" in asked.text and person("GET", "/v1/runs/r").json["state"] == "running"
    answer = browser.post("/runs/r/cancel")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/runs/r")
    assert person("GET", "/v1/runs/r").json["reason"] == "cancelled on the dashboard"
    assert 'href="/runs/r/cancel"' not in browser.get("/runs/r").text


def test_a_runs_page_draws_how_its_metrics_went(browser: Any, person: Any, worker: Any, task: str) -> None:
    token = worker("POST", "/v1/attempts/r.f/1:claim", {"worker": "w", "nonce": "n"}).json["token"]
    for loss in (2.0, 1.0):
        body = {"worker": "w", "metrics": {"loss": loss, "<b>": 1.0}}
        headers = {"Authorization": f"Bearer {token}"}
        assert browser.post("/v1/attempts/r.f/1:heartbeat", json=body, headers=headers).status_code == 200
    told = person("GET", "/v1/tasks/r.f/metrics").json["metrics"]
    assert [value for _, value in told["loss"]] == [2.0, 1.0] and [value for _, value in told["<b>"]] == [1.0]
    page = browser.get("/runs/r").text
    assert "loss: 1 (least 1, most 2)" in page.replace("<b>loss</b>", "loss") and "<polyline" in page
    assert "<b>&lt;b&gt;</b>" in page, "the name of a metric breaks nothing"


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_S2_another_site_cannot_press_the_button(browser: Any, person: Any, task: str, headers: dict[str, str]) -> None:
    assert browser.post("/runs/r/cancel", headers=headers).headers["Location"] == "/"
    assert person("GET", "/v1/runs/r").json["state"] == "running"


def test_S2_nobody_cancels_what_another_project_owns(stand: Any, http: Any, person: Any, task: str) -> None:
    assert http.post("/runs/r/cancel").headers["Location"] == "/"
    http.get(f"/?token={stand.token('client', project='other')}")
    assert http.post("/runs/r/cancel").status_code == 404
    assert http.get("/runs/r/cancel").status_code == 404
    assert person("GET", "/v1/runs/r").json["state"] == "running"


def test_the_queue_shows_who_holds_a_device_who_waits_and_why(
    stand: Any, http: Any, browser: Any, person: Any, function: Any
) -> None:
    four = Resources(gpus=(GpuRequest(sku="A100-80GB", count=4),))
    gpu = function.model_copy(update={"resources": four})
    person("PUT", "/v1/functions/f", gpu.model_dump(mode="json"))
    create(person, gpu, "first.f"), create(person, gpu, "second.f")
    page = browser.get("/queue").text
    devices, waiting = page.split("<h2>Waiting</h2>")
    assert devices.count('href="/runs/first"') == 4 and "A100-80GB" in devices
    assert waiting.index("/runs/first") < waiting.index("/runs/second"), "in the order in which they will start"
    assert "waiting for 4 x A100-80GB: 0 of 4 devices free" in waiting
    http.get(f"/?token={stand.token('client', project='other')}")
    others = http.get("/queue").text
    assert others.count("another project") == 4 and "/runs/first" not in others and "Nothing waits." in others


def test_the_queue_without_a_token_shows_nothing(http: Any, task: str) -> None:
    assert http.get("/queue").headers["Location"] == "/"
