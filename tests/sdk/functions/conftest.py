"""A training API that writes down what it is sent; trainlet's own server is not installed beside functions-framework."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Api:
    """Takes events; `status` is what it answers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.status = 202
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, {})

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.tokens.add(self.headers["Authorization"])
                if api.status != 202:
                    self.answer(api.status, {"type": "urn:x", "title": "no", "status": api.status, "detail": "no"})
                    return
                api.events += given
                self.answer(202, {"items": [one["id"] for one in given], "new": len(given), "matched": 0})

            def answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Api]:
    made = Api()
    monkeypatch.setenv("TRAINLET_API", made.url)
    monkeypatch.setenv("TRAINLET_TOKEN", "tl_of-the-function")
    monkeypatch.setenv("TRAINLET_HOME", str(tmp_path))
    yield made
    made.close()
