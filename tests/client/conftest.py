"""A real HTTP server that answers as a test says."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainlet.client.http import Client


@dataclass
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """Answers with what is in `answers`, the last one again and again; keeps the requests."""

    url: str
    answers: list[Any] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def problem(self, slug: str, status: int, detail: str, hint: str = "") -> tuple[int, dict[str, Any]]:
        """A problem document."""
        return status, {"type": f"urn:trainlet:problem:{slug}", "status": status, "detail": detail, "hint": hint}


@pytest.fixture
def server() -> Iterator[Server]:
    """The server. An answer is (status, JSON), bytes of an event stream, or `drop`: close without a word."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.requests.append(Request(self.command, self.path, headers, json.loads(raw) if raw else None))
            answer = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            if callable(answer):
                answer = answer(found.requests[-1])
            if answer == "drop":
                self.close_connection = True
                return
            status, body, kind = (
                (200, answer, "text/event-stream")
                if isinstance(answer, bytes)
                else (answer[0], json.dumps(answer[1]).encode(), "application/json")
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *args: Any) -> None:
            pass

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.daemon_threads = True
    found = Server(f"http://127.0.0.1:{serving.server_port}")
    threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of the server, with little patience."""
    made = Client(server.url, "secret-token", timeout_s=5, retry_s=2)
    yield made
    made.close()


@pytest.fixture
def make_client() -> Iterator[Callable[..., Client]]:
    """Make clients that are closed at the end."""
    made: list[Client] = []

    def make(*args: Any, **options: Any) -> Client:
        made.append(Client(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
