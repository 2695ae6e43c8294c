"""A function and a cluster to describe, and small loopback servers that stand in for what Knative runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainlet.core.specs import Entry, FunctionSpec, GpuRequest, Resources
from trainlet_knative.objects import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Return the settings of a cluster."""
    return Cluster(
        image="registry.example/trainlet/worker:0.1.0",
        api_url="http://trainlet-api.trainlet:8080",
        store_url="s3://trainlet",
        public_key="cHVibGljIGtleQ==",
        dead_letter_url="http://trainlet-api.trainlet:8080/v1/dead-letters",
    )


@pytest.fixture
def spec() -> FunctionSpec:
    """Return a GPU step with a secret."""
    return FunctionSpec(
        name="digits-train",
        bundle="a" * 64,
        entry=Entry(module="digits", qualname="train"),
        resources=Resources(gpus=(GpuRequest(sku="A100-80GB", count=2),), cpu=4, memory_bytes=16 * 1024**3),
        secrets=("hf-token",),
        max_workers=8,
    )


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Return a helper that waits until something holds, with a deadline."""

    def wait(condition: Callable[[], object], within_s: float = 5.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.005)

    return wait


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve on a free loopback port."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class QueueProxy:
    """Imitates queue-proxy in front of a worker: counts what it counts, tells a drain as it tells it."""

    port: int = 0
    draining: bool = False
    broken: bool = False
    in_flight: int = 0
    most_in_flight: int = 0
    holds: list[str] = field(default_factory=list)
    probes: int = 0
    stream: Callable[[], Iterator[bytes]] | None = None
    path: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the request handler."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agent, probe = self.headers.get("User-Agent", ""), self.headers.get("K-Network-Probe")
                if agent.startswith("kube-probe/"):
                    proxy.probes += 1
                    status = 400 if probe != "queue" else 503 if proxy.draining else 200
                    self.answer(status, b"shutting down" if proxy.draining else b"queue")
                    return
                with proxy.lock:
                    proxy.holds.append(self.path)
                    proxy.in_flight += 1
                    proxy.most_in_flight = max(proxy.most_in_flight, proxy.in_flight)
                try:
                    self.pass_on()
                finally:
                    with proxy.lock:
                        proxy.in_flight -= 1

            def pass_on(self) -> None:
                if proxy.broken or proxy.stream is None or self.path != proxy.path:
                    self.answer(502, b"")
                    return
                self.send_response(200)
                self.end_headers()
                try:
                    for part in proxy.stream():
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:
                    return

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def queue_proxy() -> Iterator[QueueProxy]:
    """Return a running queue-proxy."""
    proxy = QueueProxy()
    with served(proxy.handler()) as port:
        proxy.port = port
        yield proxy


@dataclass
class Call:
    """A request that the fake Kubernetes API saw."""

    method: str
    path: str
    query: str
    content_type: str
    body: Any


@dataclass
class FakeKubernetes:
    """Keeps objects by path and records requests; a patch merges, an apply replaces, as far as these tests need."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    refuse: tuple[int, str] | None = None

    def writes(self) -> list[Call]:
        """Return the requests that change something."""
        return [call for call in self.calls if call.method != "GET"]

    def handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the request handler."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: nobody waits for an acknowledgement in between

            def do_GET(self) -> None:
                self.serve(None)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.serve(None)  # a review answers with what is kept at its path

            def do_PATCH(self) -> None:
                self.serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def serve(self, body: Any) -> None:
                path, _, query = self.path.partition("?")
                kind = self.headers.get("Content-Type", "")
                fake.calls.append(Call(self.command, path, query, kind, body))
                if fake.refuse is not None:
                    status, message = fake.refuse
                    self.answer(status, {"kind": "Status", "message": message, "code": status})
                    return
                if kind == "application/apply-patch+yaml":
                    fake.objects[path] = body
                elif body is not None and path in fake.objects:
                    merge(fake.objects[path], body)
                found = fake.objects.get(path)
                missing = {"kind": "Status", "message": f"{path} not found", "code": 404}
                self.answer(404 if found is None else 200, missing if found is None else found)

            def answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@pytest.fixture
def kubernetes_api() -> Iterator[FakeKubernetes]:
    """Return a running stand-in for the Kubernetes API."""
    fake = FakeKubernetes()
    with served(fake.handler()) as port:
        fake.url = f"http://127.0.0.1:{port}"
        yield fake
