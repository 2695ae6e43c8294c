"""The training API's replies, cut after every single byte: nothing wrong is believed, no line is lost or said twice."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core import wire
from trainlet.core.clocks import ManualClock
from trainlet_pipelines.pods.following import Follower, create_or_attach
from trainlet_pipelines.pods.taps import Tap

STAMP = "2026-01-01T00:00:00Z"
TASK = wire.TaskView(
    key="k", project="p", run_id="r", node="train", function="f", digest="0" * 64, state="running", created_at=STAMP,
    updated_at=STAMP,
)  # fmt: skip
ENDED = TASK.model_copy(update={"state": "succeeded", "output": [1, 2.5]})
BODY = wire.TaskCreate(
    run_id="r", node="train", function="f", digest="0" * 64, dispatcher=wire.DispatcherLease(id="pod-1")
)


class Server:
    """One request for each connection. `cuts` counts the bytes of the next replies; afterwards replies are whole."""

    def __init__(self) -> None:
        self.cuts: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                channel, _ = self._listener.accept()
                with channel, contextlib.suppress(OSError), channel.makefile("rb") as stream:
                    self._serve(channel, stream)

    def _serve(self, channel: socket.socket, stream: Any) -> None:
        line, length = stream.readline().decode(), 0
        while (header := stream.readline().strip()) != b"":
            if header.lower().startswith(b"content-length:"):
                length = int(header.partition(b":")[2])
        stream.read(length)
        reply = reply_to(line)
        cut = self.cuts.pop(0) if self.cuts else len(reply)
        channel.sendall(reply[:cut])


def reply_to(line: str) -> bytes:
    """Answer as the API does: the task ends at the first look, and has printed two lines."""
    run = wire.RunView(id="r", project="p", pipeline="x", state="running", created_at=STAMP)
    if "/changes" in line:
        value: Any = wire.Changes(cursor=1, run=run, tasks=[ENDED]).model_dump(mode="json")
    elif "/logs" in line:
        fresh = "after=0" in line
        lines = [wire.LogLine(seq=n, task="k", epoch=1, stream="stdout", at="", text=f"line {n}") for n in (1, 2)]
        value = {"items": [one.model_dump(mode="json") for one in lines] if fresh else []}
    else:
        value = TASK.model_dump(mode="json")
    body = json.dumps(value).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.url, "token", retry_s=0)
    yield made
    made.close()


def test_a_task_is_created_or_the_api_is_away_whatever_byte_of_the_reply_is_the_last(
    server: Server, client: Client
) -> None:
    for cut in range(len(reply_to("PUT /v1/tasks/k"))):
        server.cuts = [cut]
        with pytest.raises(ApiUnreachable):
            create_or_attach(client, "k", BODY, 0)
    assert create_or_attach(client, "k", BODY, 0).state == "running"


@pytest.mark.parametrize("call", ["/changes", "/logs?after=0"])
def test_lines_are_said_once_and_the_end_is_seen_whatever_byte_is_the_last(
    call: str, server: Server, client: Client
) -> None:
    length = len(reply_to(call))
    for cut in range(length):
        server.cuts = [cut] if "/logs" in call else [len(reply_to("/logs?after=0")), 10_000, cut]
        said: list[str] = []
        clock = ManualClock()
        tap = Tap(said.append, clock, "logs")
        follower = Follower(client, tap, said.append, clock=clock, pause=lambda _: None)
        assert follower.follow(TASK).output == [1, 2.5]
        assert [one for one in said if one.startswith("line")] == ["line 1", "line 2"]
        assert any("is away" in one for one in said), cut
        assert not server.cuts
