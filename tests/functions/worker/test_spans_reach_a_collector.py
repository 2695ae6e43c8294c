"""A worker that is told of an OpenTelemetry collector sends it the span of each attempt, also of its last one."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")
QUICK = "def f():\n    return 'done'\n"


def test_a_worker_sends_the_span_of_its_attempt_before_it_goes(bench: Any) -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        bench.offer(QUICK)
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        worker = bench.start(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, NO_PROXY="127.0.0.1", TRAINLET_WARM_S="0.5")
        assert bench.finish().output == "done"
        assert worker.wait(60) == 0
    finally:
        server.shutdown()
        server.server_close()
    assert any(b"attempt f" in body and b"trainlet-worker" in body for body in bodies)
