from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

STEP = """
import trainlet as tl

@tl.step
def add(x: int) -> int:
    return x + 1
"""


@pytest.fixture
def board() -> Iterator[Any]:
    """An address that keeps what it gets, and says that a run has ended."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.got.append(event)
            self.send_response(204)
            self.end_headers()
            if event["type"] == "dev.trainlet.run.succeeded":
                server.ended.set()

        def log_message(self, *_: object) -> None: ...

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.ended = [], threading.Event()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_what_a_run_does_is_told_to_a_sink(trainlet: Any, write: Any, board: Any) -> None:
    url = f"http://127.0.0.1:{board.server_address[1]}/events"
    assert "whsec_" in trainlet("sink", "add", url, "--name", "board", "--types", "run.*,task.succeeded").stdout
    assert trainlet("sink", "test", "board").stdout.startswith("board: it took the event (204, ")
    write("script.py", STEP)
    assert trainlet("run", "script.py:add", "-p", "x=1").returncode == 0
    assert board.ended.wait(60)
    types = [event["type"].removeprefix("dev.trainlet.") for event in board.got]
    assert types == ["sink.test", "run.started", "task.succeeded", "run.succeeded"]
    listed = trainlet("sink", "ls").stdout
    assert f"board\t{url}\trun.*, task.succeeded\tactive\t0\t0\t20" in listed
    assert "letter\tcreated" in trainlet("sink", "letters", "board").stdout
    assert trainlet("sink", "replay", "board").returncode == 2
    assert trainlet("sink", "replay", "board", "--all").stdout == "0 letters are sent once more to board.\n"
    assert trainlet("sink", "rm", "board").stdout == "The sink board is removed.\n"
    assert "has no sink 'board'" in trainlet("sink", "test", "board").stderr
