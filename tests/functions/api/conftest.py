"""The application on a real database and store, without processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from trainlet.client.stores import DirectoryStore
from trainlet.core import bundles
from trainlet.core.models import canonical_json
from trainlet.core.settings import Settings
from trainlet.core.specs import Entry, FunctionSpec
from trainlet.core.triggers import Watch
from trainlet.core.wire import Deployment, Device
from trainlet_functions.api.app import create_app
from trainlet_functions.signatures import Signer
from trainlet_functions.sinks.addresses import Rule
from trainlet_functions.sinks.courier import Courier
from trainlet_functions.state import devices, tokens
from trainlet_functions.state.database import Database
from trainlet_functions.triggers.matching import Matcher
from trainlet_functions.triggers.sns import Certificates


class Backend:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.pins: list[tuple[str, bool]] = []
        self.watched: list[tuple[str, Watch]] = []

    def apply(self, project: str, spec: FunctionSpec) -> None:
        self.applied.append(spec.name)

    def watch(self, project: str, watch: Watch) -> None:
        self.watched.append((project, watch))

    def demand(self, project: str, spec: FunctionSpec, workers: int) -> None: ...

    def status(self, project: str, function: str | None = None) -> dict[str, Deployment]:
        return {}

    def pin(self, worker: str, busy: bool) -> None:
        self.pins.append((worker, busy))

    def close(self) -> None: ...


class Stand:
    """What the application needs of a platform."""

    def __init__(self, home: Path, database_url: str) -> None:
        self.settings = Settings(home=home)
        self.database = Database(database_url)
        self.database.migrate()
        self.store = DirectoryStore(home / "store")
        self.backend = Backend()
        self.signer = Signer.load(home / "signing.key")
        self.matcher = Matcher()
        self.spans = None
        self.courier = Courier(self.database, self.signer, Rule(None, embedded=True))
        self.certificates = Certificates()
        self.closing = threading.Event()
        self.embedded = True
        self.believes_brokers = False
        with self.database.write() as tx:
            devices.register(tx, [Device(uuid=f"virtual-{n}", sku="any", virtual=True) for n in range(4)])

    def touch(self) -> None: ...

    def identify(self, token: str) -> tokens.Identity:
        with self.database.read() as tx:
            return tokens.verify(tx, token)

    def check_sender(self, project: str, function: str, token: str) -> None: ...

    def kubeflow_namespace(self, project: str) -> str | None:
        return None

    def packages(self) -> dict[str, str]:
        return {"numpy": "2.0.0"}

    def token(self, *scopes: str, project: str = "p") -> str:
        with self.database.write() as tx:
            return tokens.create(tx, project, set(scopes), "test")

    def bundle(self, text: str = "def f(): pass\n") -> str:
        manifest = bundles.BundleManifest(entry=Entry(module="m", qualname="f"))
        files = {"m.py": text.encode(), bundles.MANIFEST: canonical_json(manifest.model_dump(mode="json"))}
        digest, data = bundles.pack(files)
        self.store.create(bundles.bundle_key(digest), data)
        return digest


class Caller:
    """Calls the API as one identity."""

    def __init__(self, http: FlaskClient, token: str | None) -> None:
        self._http = http
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.open(path, method=method, json=body, headers={**self.headers, **named})


@pytest.fixture
def stand(tmp_path: Path, database_url: str) -> Iterator[Stand]:
    stand = Stand(tmp_path, database_url)
    yield stand
    stand.courier.close()
    stand.database.close()


@pytest.fixture
def http(stand: Stand) -> FlaskClient:
    return create_app(stand).test_client()  # type: ignore[arg-type]


@pytest.fixture
def person(stand: Stand, http: FlaskClient) -> Caller:
    return Caller(http, stand.token("client"))


@pytest.fixture
def worker(stand: Stand, http: FlaskClient) -> Caller:
    return Caller(http, stand.token("worker:f"))


@pytest.fixture
def function(stand: Stand, person: Caller) -> FunctionSpec:
    spec = FunctionSpec(name="f", bundle=stand.bundle(), entry=Entry(module="m", qualname="f"))
    assert person("PUT", "/v1/functions/f", spec.model_dump(mode="json")).status_code == 200
    return spec


@pytest.fixture
def task(person: Caller, function: FunctionSpec) -> str:
    body = {"run_id": "r", "node": "f", "function": "f", "digest": function.digest(), "args": {"x": 1}}
    assert person("PUT", "/v1/tasks/r.f", body).status_code == 201
    return "r.f"


class Receiver:
    """A real HTTP server that stands for somebody's sink.

    It keeps what it got. `answers` are the next ones (status, headers); then it is 204.
    """

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.open = threading.Event()
        self.open.set()
        self.url = ""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]

    @property
    def types(self) -> list[str]:
        return [event["type"].removeprefix("dev.trainlet.") for event in self.events]


@contextmanager
def _receiving() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            found.open.wait(60)
            status, headers = found.answers.pop(0) if found.answers else (204, {})
            self.send_response(status)
            for name, value in {"Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield found
    found.open.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def receive() -> Iterator[Callable[[], Receiver]]:
    """Start receivers."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(_receiving())
