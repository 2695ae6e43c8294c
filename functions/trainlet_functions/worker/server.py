"""The worker's HTTP server: CloudEvents on `POST /`, health on two paths, nothing else.

It answers within a second and never with a body for an event: a broker would take a body for a reply event.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from trainlet_functions import wakeups

MAX_BODY = 1024 * 1024
MAX_HEADERS = 64


class Wakeable(Protocol):
    """What the server needs of the worker."""

    def wake(self, task: str, epoch: int) -> int:
        """Act on a wake-up and return the HTTP status."""
        ...

    def ready(self) -> bool:
        """Say whether the worker takes work."""
        ...


def serve(
    worker: Wakeable,
    *,
    host: str,
    port: int,
    public_key: str,
    project: str,
    function: str,
    hold: tuple[str, Callable[[], Iterator[bytes]]] | None = None,
) -> ThreadingHTTPServer:
    """Make the server; the caller runs `serve_forever` on a thread.

    `hold` is the path of a long answer, and what it consists of: in a pod it keeps the worker from being scaled away.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        # Answers are small and written at once; waiting for more to send would cost 40 ms each.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > MAX_BODY or len(self.headers) > MAX_HEADERS:
                self.close_connection = True
                self._answer(413 if length.isdigit() else 400, "the body must have a length of at most 1 MiB")
                return
            body = self.rfile.read(int(length))
            if self.path != "/":
                self._answer(404, "events go to /")
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                event = wakeups.read(headers, body, public_key=public_key)
                event.require(project, function)
            except wakeups.Refused as refused:
                self._answer(refused.status, str(refused))
                return
            self._answer(worker.wake(event.task, event.epoch))

        def do_GET(self) -> None:
            if self.path == "/health/liveness":
                self._answer(200, "alive")
            elif self.path == "/health/readiness":
                self._answer(200 if worker.ready() else 503, "ready" if worker.ready() else "draining")
            elif hold is not None and self.path == hold[0]:
                self._stream(hold[1]())
            else:
                self._answer(404, "there is nothing here")

        def _stream(self, pieces: Iterator[bytes]) -> None:
            self.close_connection = True  # its end is the end of the answer
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever held the other end let go
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()

        def _answer(self, status: int, text: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            if text:
                self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: probes come every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    return Server((host, port), Handler)
