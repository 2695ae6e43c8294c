"""The worker's HTTP server: CloudEvents on `POST /`, health on two paths, nothing else.

It answers within a second, and an event that it takes with no body: a broker would take one for a reply event. What it
refuses it refuses with words, which a broker shows to whoever looks after it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from trainlet_functions import wakeups
from trainlet_functions.worker import senders

MAX_BODY = 1024 * 1024
MAX_HEADERS = 64
_UNREAD_BYTES = 4 * MAX_BODY
_UNREAD_S = 2.0


class Wakeable(Protocol):
    """What the server needs of the worker."""

    def wake(self, task: str, epoch: int, sender: str | None = None) -> int:
        """Act on a wake-up, which came with its sender's token, and return the HTTP status."""
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
    audience: str | None = None,
) -> ThreadingHTTPServer:
    """Make the server; the caller runs `serve_forever` on a thread.

    `hold` is the path of a long answer, and what it consists of: in a pod it keeps the worker from being scaled away. With
    an `audience` only events with a token for it are taken.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        # Answers are small and written at once; waiting for more to send would cost 40 ms each.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > MAX_BODY:
                self._hang_up(413 if length.isdigit() else 400, "the body must have a length of at most 1 MiB")
                return
            if len(self.headers) > MAX_HEADERS:
                self._hang_up(431, f"the event has {len(self.headers)} headers, and at most {MAX_HEADERS} are taken")
                return
            body = self.rfile.read(int(length))
            if self.path != "/":
                self._answer(404, "events go to /")
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                sender = None if audience is None else senders.token_of(headers, audience)
                event = wakeups.read(headers, body, public_key=public_key)
                event.require(project, function)
            except wakeups.Refused as refused:
                self._answer(refused.status, str(refused))
                return
            self._answer(worker.wake(event.task, event.epoch, sender))

        def do_GET(self) -> None:
            if self.path == "/health/liveness":
                self._answer(200, "alive")
            elif self.path == "/health/readiness":
                self._answer(200 if worker.ready() else 503, "ready" if worker.ready() else "draining")
            elif hold is not None and self.path == hold[0] and self._from_this_pod():
                self._stream(hold[1]())
            else:
                self._answer(404, "there is nothing here")

        def _from_this_pod(self) -> bool:
            """Say whether the pod itself asks, through its own queue-proxy, which notes last whom it passes on."""
            hops = ",".join(self.headers.get_all("X-Forwarded-For", []))
            asking = (self.client_address[0], hops.rpartition(",")[2].strip())
            try:
                return all(ipaddress.ip_address(one).is_loopback for one in asking if one)
            except ValueError:
                return False

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Refuse what is no HTTP that this server reads, such as headers without end."""
            self._hang_up(code, explain or message or "this is not understood")

        def _hang_up(self, status: int, text: str) -> None:
            """Answer before everything is read, and take in the rest: else it would cut the answer off."""
            self.close_connection = True
            with contextlib.suppress(OSError):
                self._answer(status, text)
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_WR)
                self.connection.settimeout(_UNREAD_S)
                left = _UNREAD_BYTES
                while left > 0 and (part := self.connection.recv(1 << 16)):
                    left -= len(part)

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
            if self.close_connection:
                self.send_header("Connection", "close")
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
