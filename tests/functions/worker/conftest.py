"""A real worker process against a training API that is only a few dictionaries and does what a test tells it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from trainlet.client.stores import open_store
from trainlet.core import bundles, envelopes, wire
from trainlet.core.specs import Entry, FunctionSpec
from trainlet_functions import processes
from trainlet_functions.signatures import Signer

NOW = "2026-01-01T00:00:00.000Z"


class StandIn:
    """The attempt endpoints. `away` drops every connection; `deaf` never answers; `lose_next_claim` drops one answer."""

    def __init__(self) -> None:
        self.offered: dict[str, wire.ClaimReply] = {}
        self.held: dict[str, tuple[str, wire.ClaimReply]] = {}
        self.asks: list[wire.ClaimRequest] = []
        self.heartbeats: list[wire.HeartbeatRequest] = []
        self.finishes: list[wire.FinishRequest] = []
        self.lines: dict[int, list[str]] = {}
        self.stop: wire.StopCode | None = None
        self.fenced = False
        self.away = False
        self.refused = 0
        self.deaf = threading.Event()
        self.lose_next_claim = False
        self.lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if stand_in.deaf.is_set():
                    time.sleep(3)
                if stand_in.away or stand_in.deaf.is_set():
                    stand_in.refused += 1
                    self.close_connection = True
                    return
                with stand_in.lock:
                    status, reply = stand_in.answer(self.path, body)
                if status == 0:
                    self.close_connection = True
                    return
                data = b"" if reply is None else json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        match = re.fullmatch(r"/v1/(?:attempts|functions)/([^/]+)(?:/(\d+))?:([a-z-]+)", path)
        assert match, path
        name, _, action = match.groups()
        if action in ("claim", "claim-next"):
            return self.claim(name if action == "claim" else None, wire.ClaimRequest.model_validate_json(body))
        if self.fenced:
            return 409, {"type": "urn:trainlet:problem:fenced", "title": "fenced", "status": 409}
        if action == "heartbeat":
            self.heartbeats.append(wire.HeartbeatRequest.model_validate_json(body))
            told = wire.HeartbeatReply(directive="stop", code=self.stop, reason="the test says so")
            return 200, (told if self.stop else wire.HeartbeatReply()).model_dump(mode="json")
        if action == "logs":
            request = wire.LogsRequest.model_validate_json(body)
            held = self.lines.setdefault(request.rank, [])
            assert request.offset <= len(held), "a gap in the log"
            held += [text for _, _, text in request.lines[len(held) - request.offset :]]
            return 200, {"next_offset": len(held)}
        assert action == "finish"
        self.finishes.append(wire.FinishRequest.model_validate_json(body))
        self.held.pop(name, None)
        return 200, task_view(name).model_dump(mode="json")

    def claim(self, key: str | None, request: wire.ClaimRequest) -> tuple[int, Any]:
        self.asks.append(request)
        again = [reply for nonce, reply in self.held.values() if nonce == request.nonce]
        if again:
            return 200, again[0].model_dump(mode="json")
        if key is None:
            key = next(iter(self.offered), None)
        if key is None:
            return 204, None
        if key not in self.offered:
            return 409, {"type": "urn:trainlet:problem:taken", "title": "taken", "status": 409}
        reply = self.offered.pop(key)
        self.held[key] = (request.nonce, reply)
        if self.lose_next_claim:
            self.lose_next_claim = False
            return 0, None
        return 200, reply.model_dump(mode="json")


def task_view(key: str) -> wire.TaskView:
    return wire.TaskView(
        key=key,
        project="p",
        run_id=key.split(".")[0],
        node="f",
        function="f",
        digest="0" * 64,
        state="running",
        created_at=NOW,
        updated_at=NOW,
    )


class Bench:
    """One API, one store, one function, and the workers of a test."""

    eventually = staticmethod(eventually)

    def __init__(self, root: Path, api: StandIn) -> None:
        self.root = root
        self.api = api
        self.signer = Signer.load(root / "key")
        self.store_url = str(root / "store")
        self.started: list[subprocess.Popen[bytes]] = []
        self.count = 0

    def offer(self, source: str, *, gpu: bool = False, devices: Sequence[wire.Device] = (), **changes: Any) -> str:
        """Offer a task whose step is the function `f` in the source; returns its key."""
        self.count += 1
        key = f"run{self.count}.f"
        content = textwrap.dedent(source).encode()
        entry = Entry(module=f"step{hashlib.sha256(content).hexdigest()[:8]}", qualname="f")
        manifest = bundles.BundleManifest(entry=entry)
        files = {f"{entry.module}.py": content, bundles.MANIFEST: manifest.model_dump_json().encode()}
        digest, data = bundles.pack(files)
        with contextlib.suppress(FileExistsError):
            open_store(self.store_url).create(bundles.bundle_key(digest), data)
        spec = FunctionSpec(name="f", bundle=digest, entry=entry, **changes)
        virtual = [wire.Device(uuid="virtual-0", sku="A100-80GB", virtual=True)] if gpu else []
        self.api.offered[key] = wire.ClaimReply(
            task=task_view(key),
            spec=spec,
            args={},
            epoch=1,
            token="t",
            devices=[*virtual, *devices],
            lease_s=1.0,
            heartbeat_s=0.1,
            wall_anchor_ns=time.time_ns(),
            store_url=self.store_url,
        )
        return key

    def event_file(self, folder: Path, key: str, *, function: str = "f") -> str:
        """Write the event of a task as a JobSink mounts it; returns the folder."""
        data = {"task": key, "epoch": 1, "function": function, "digest": "0" * 64, "bundle": "1" * 64, "project": "p"}
        raw = json.dumps(data, separators=(",", ":")).encode()
        origin, event_id = envelopes.source("p"), f"{key}.1.1"
        signed = envelopes.signed_bytes(envelopes.WAKE_UP, origin, event_id, key, raw)
        event = {
            "specversion": "1.0",
            "type": envelopes.WAKE_UP,
            "source": origin,
            "id": event_id,
            "subject": key,
            "datacontenttype": "application/json",
            envelopes.SIGNATURE: self.signer.sign(signed),
            "data": data,
        }
        folder.mkdir()
        (folder / "event").write_text(json.dumps(event))
        return str(folder)

    def start(self, *, preload: str = "", under: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker of `f`, or a program that starts it."""
        folder = self.root / f"worker{len(self.started)}"
        folder.mkdir()
        with (folder / "worker.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, *(("-m", "trainlet_functions.worker") if under is None else ("-c", under))],
                env={
                    **os.environ,
                    "TRAINLET_API": self.api.url,
                    "TRAINLET_WORKER_TOKEN": "worker-token",
                    "TRAINLET_WORKER_ID": f"{folder.name}-{uuid.uuid4().hex[:8]}",
                    "TRAINLET_FUNCTION": "f",
                    "TRAINLET_PROJECT": "p",
                    "TRAINLET_HOME": str(self.root / "home"),
                    "TRAINLET_PUBLIC_KEY": self.signer.public_key,
                    "TRAINLET_WORKER_DIR": str(folder),
                    "TRAINLET_WARM_S": "60",
                    "TRAINLET_PRELOAD": preload,
                    **environment,
                },
                stdout=log,
                stderr=log,
            )
        self.started.append(worker)
        return worker

    def finish(self) -> wire.FinishRequest:
        """Wait for the next end of an attempt."""
        eventually(lambda: self.api.finishes, what="the end of an attempt")
        return self.api.finishes.pop(0)

    def wake(self, key: str) -> tuple[int, bytes]:
        """Send the worker its signed event; returns status and body."""
        url = eventually(lambda: self.api.asks and self.api.asks[-1].url, what="the worker's first ask")
        data = {"task": key, "epoch": 1, "function": "f", "digest": "0" * 64, "bundle": "1" * 64, "project": "p"}
        body = json.dumps(data, separators=(",", ":")).encode()
        origin = envelopes.source("p")
        signed = envelopes.signed_bytes(envelopes.WAKE_UP, origin, f"{key}.1.1", key, body)
        headers = {
            "ce-specversion": "1.0",
            "ce-type": envelopes.WAKE_UP,
            "ce-source": origin,
            "ce-id": f"{key}.1.1",
            "ce-subject": key,
            f"ce-{envelopes.SIGNATURE}": self.signer.sign(signed),
            "content-type": "application/json",
        }
        connection = http.client.HTTPConnection("127.0.0.1", int(url.rstrip("/").rsplit(":", 1)[1]), timeout=10)
        try:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def end(self) -> None:
        for worker in self.started:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()
        processes.kill_marked("TRAINLET_HOME", str(self.root / "home"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    api = StandIn()
    made = Bench(tmp_path, api)
    yield made
    api.away = True
    made.end()
    api.close()
