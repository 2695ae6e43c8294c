"""A stand-in for queue-proxy, after the tables of what the real one was observed to do.

A request that is no probe counts as concurrency and starts the drain's quiet time anew; a kubelet's probe with
`K-Network-Probe: queue` does neither, and tells a drain at once. A request is cut at the Revision's timeout, while the
worker goes on.
"""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOLD = "/hold/"
_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}


class QueueProxy:
    """One pod's queue-proxy. `timeout_s` is the Revision's timeoutSeconds."""

    def __init__(self, user_port: int, timeout_s: float) -> None:
        self._user_port = user_port
        self._timeout_s = timeout_s
        self.draining = False
        self._refusing = False
        self._lock = threading.Lock()
        self._in_flight = 0
        self._holding = 0
        self.most_holds = 0
        self.cut = 0  # requests that the Revision's timeout ended
        self.refuses_holds = False
        self._area = 0.0
        self._since = self._reported = time.monotonic()
        self.last_arrival = time.monotonic()
        self.holds: list[str] = []
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def report(self) -> float:
        """Return the average concurrency since the last report, as the autoscaler scrapes it."""
        with self._lock:
            self._count(0)
            now = time.monotonic()
            average = self._area / max(1e-6, now - self._reported)
            self._area, self._reported = 0.0, now
            return average

    def drain(self) -> None:
        """Begin to drain, as at SIGTERM or the kubelet's preStop call."""
        with self._lock:
            if not self.draining:
                self.draining = True
                self.last_arrival = time.monotonic()

    def quiet_for_s(self) -> float:
        """Return how long ago the last request that counts arrived."""
        return time.monotonic() - self.last_arrival

    def close(self) -> None:
        self._refusing = True
        self._server.shutdown()
        self._server.server_close()

    def _count(self, change: int) -> None:
        now = time.monotonic()
        self._area += self._in_flight * (now - self._since)
        self._since = now
        self._in_flight += change

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if self.headers.get("User-Agent", "").startswith("kube-probe/"):
                    right = self.headers.get("K-Network-Probe") == "queue"
                    status = (503 if proxy.draining else 200) if right else 400
                    self.answer(status, b"shutting down" if proxy.draining else b"queue")
                    return
                if _HOLD not in self.path:
                    self.forward(None)
                    return
                if proxy.refuses_holds:
                    self.answer(503, b"")
                    return
                with proxy._lock:
                    proxy.holds.append(self.path)
                    proxy._holding += 1
                    proxy.most_holds = max(proxy.most_holds, proxy._holding)
                try:
                    self.forward(None)
                finally:
                    with proxy._lock:
                        proxy._holding -= 1

            def do_POST(self) -> None:
                self.forward(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def forward(self, body: bytes | None) -> None:
                with proxy._lock:
                    proxy._count(1)
                    proxy.last_arrival = time.monotonic()
                try:
                    self.pass_on(body)
                finally:
                    with proxy._lock:
                        proxy._count(-1)

            def pass_on(self, body: bytes | None) -> None:
                end_s = time.monotonic() + proxy._timeout_s
                upstream = http.client.HTTPConnection("127.0.0.1", proxy._user_port, timeout=proxy._timeout_s)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
                before = headers.pop("X-Forwarded-For", "")
                headers["X-Forwarded-For"] = ", ".join(filter(None, (before, self.client_address[0])))
                try:
                    upstream.request(self.command, self.path, body, headers)
                    response = upstream.getresponse()
                    self.send_response(response.status)
                    for name, value in response.getheaders():
                        if name.lower() not in _HOP:
                            self.send_header(name, value)
                    self.end_headers()
                    while part := response.read1(4096):
                        self.wfile.write(part)
                        self.wfile.flush()
                        if time.monotonic() >= end_s:
                            proxy.cut += 1
                            break
                except TimeoutError:
                    self.answer(504, b"request timeout")
                except (OSError, http.client.HTTPException):
                    self.answer(502, b"")
                finally:
                    upstream.close()

            def answer(self, status: int, body: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is no error of the proxy."""
