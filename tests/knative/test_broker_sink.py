"""Wake-ups on their way into a broker: what is sent, and what each answer means."""

from __future__ import annotations

import httpx
import pytest

from trainlet.core.errors import PlatformError
from trainlet_knative.sinks import BrokerSink

HEADERS = {
    "ce-specversion": "1.0",
    "ce-id": "t.1.1",
    "ce-source": "/projects/vision",
    "content-type": "application/json",
}


def sink(status: int, seen: list[httpx.Request]) -> BrokerSink:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, text="because")

    return BrokerSink("http://broker/{}/default".format, http=httpx.Client(transport=httpx.MockTransport(answer)))


def test_it_posts_a_binary_event_that_the_trigger_can_filter() -> None:
    seen: list[httpx.Request] = []
    assert sink(202, seen).deliver(HEADERS, b'{"task":"t"}', "vision", "digits-train")
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://broker/vision/default")
    assert request.content == b'{"task":"t"}'
    assert request.headers["ce-id"] == "t.1.1"
    assert request.headers["ce-trainletfunction"] == "digits-train"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [408, 409, 429, 503])
def test_a_busy_broker_is_tried_again(status: int) -> None:
    assert sink(status, []).deliver(HEADERS, b"{}", "p", "f") is False


@pytest.mark.parametrize(
    ("status", "hint"), [(404, "Create the Broker"), (403, "install --project p makes"), (400, "log"), (500, "log")]
)
def test_a_refusal_says_what_to_do(status: int, hint: str) -> None:
    with pytest.raises(PlatformError, match=f"{status}.*because.*{hint}"):
        sink(status, []).deliver(HEADERS, b"{}", "p", "f")


def test_a_broker_that_is_not_reached_is_named() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    broken = BrokerSink("http://broker/{}/default".format, http=httpx.Client(transport=httpx.MockTransport(fail)))
    with pytest.raises(PlatformError, match="http://broker/p/default was not reached"):
        broken.deliver(HEADERS, b"{}", "p", "f")
