"""I15, I18, I19: what S3 servers and networks do on a bad day is waited out or said, and never taken for an empty store."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet.client.stores.s3 import S3Store
from trainlet.core.clocks import ManualClock
from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints, verify

PREFIX = "runs/r.train"
NEVER = -1  # no answer, and the connection stays open
ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"


class Server:
    """A bucket in memory that answers each request with the next of these troubles, while there are any."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.troubles: list[tuple[str, int, str, bool]] = []  # method, status, code, whether it is done all the same
        self.gate = threading.Event()  # writes wait here while it is not set
        self.gate.set()
        self.over = threading.Event()
        self.spared = 0  # so many of them are answered well before
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def _trouble(self, act: Callable[[], tuple[int, bytes]]) -> None:
        for index, (method, status, code, done) in enumerate(self.owner.troubles):
            if method == self.command:
                if self.owner.spared > 0:
                    self.owner.spared -= 1
                    break
                del self.owner.troubles[index]
                if done:
                    act()
                if status == NEVER:
                    self.owner.over.wait(60)
                if status in (0, NEVER):
                    self.close_connection = True
                    return
                self._answer(status, ERROR.format(code=code).encode())
                return
        self._answer(*act())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", self.range)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.owner.gate.wait(60)

        def act() -> tuple[int, bytes]:
            if self.path in self.owner.objects and self.headers["If-None-Match"] == "*":
                return 412, ERROR.format(code="PreconditionFailed").encode()
            self.owner.objects[self.path] = body
            return 200, b""

        self._trouble(act)

    def do_DELETE(self) -> None:
        def act() -> tuple[int, bytes]:
            self.owner.objects.pop(self.path, None)
            return 204, b""

        self._trouble(act)

    def do_POST(self) -> None:
        """Delete what the body names."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        for key in re.findall("<Key>(.*?)</Key>", body):
            self.owner.objects.pop(f"/bucket/{key}", None)
        self._answer(200, b"<?xml version='1.0'?><DeleteResult></DeleteResult>")

    def do_HEAD(self) -> None:
        self._trouble(lambda: (200, self.owner.objects[self.path]) if self.path in self.owner.objects else (404, b""))

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "list-type=2" in query:
            self._trouble(lambda: (200, self._listing(query)))
            return

        def act() -> tuple[int, bytes]:
            body = self.owner.objects.get(path)
            if body is None:
                return 404, ERROR.format(code="NoSuchKey").encode()
            wanted = self.headers["Range"]
            if wanted is None:
                return 200, body
            first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
            self.range = f"bytes {first}-{last}/{len(body)}"
            return 206, body[first : last + 1]

        self._trouble(act)

    def _listing(self, query: str) -> bytes:
        from urllib.parse import parse_qs

        prefix = parse_qs(query).get("prefix", [""])[0]
        items = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
            f"<Size>{len(body)}</Size></Contents>"
            for path, body in sorted(self.owner.objects.items())
            if (key := path.removeprefix("/bucket/")).startswith(prefix)
        )
        return f"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield made
    made.gate.set()
    made.close()


def saved(epoch: int = 1, step: int = 1) -> Checkpointer:
    made = Checkpointer(S3Store("bucket"), PREFIX, epoch)
    made.register(weights=np.full(5, float(step)))
    made.save(step)
    return made


def restored(epoch: int) -> tuple[int, float]:
    weights = np.zeros(5)
    made = Checkpointer(S3Store("bucket"), PREFIX, epoch)
    made.register(weights=weights)
    start = made.restore()
    return (start.step if start else 0), float(weights[0])


@pytest.mark.parametrize("after", range(4))  # the record that takes over, a pack, the manifest, the commit
@pytest.mark.parametrize(
    ("status", "code", "done"),
    [
        (503, "SlowDown", False),
        (500, "InternalError", True),  # applied, and the reply says that it failed
        (409, "ConditionalRequestConflict", False),
        (0, "cut", False),
        (0, "cut", True),  # applied, and no reply: the second try gets a 412 for its own write
    ],
)
def test_I5_I15_a_write_that_fails_once_is_repeated_and_counts_once(
    server: Server, status: int, code: str, done: bool, after: int
) -> None:
    saved()
    server.spared = after
    server.troubles = [("PUT", status, code, done)]
    saved(2, 2)
    assert server.troubles == []
    assert restored(3) == (2, 2.0)
    assert [one.step for one in list_checkpoints(S3Store("bucket"), PREFIX)] == [2, 1]
    assert verify(S3Store("bucket"), PREFIX) == []


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (403, "ExpiredToken"), (403, "AccessDenied")])
def test_I19_a_list_that_fails_is_never_an_empty_store(server: Server, status: int, code: str) -> None:
    saved()
    server.troubles = [("GET", status, code, False)] * 50
    with pytest.raises(PlatformError, match=r"runs/r.train/log.*AWS_"):
        list_checkpoints(S3Store("bucket"), PREFIX)
    with pytest.raises(PlatformError):
        restored(2)


@pytest.mark.parametrize("done", [False, True])
def test_I15_an_answer_that_never_comes_is_not_waited_for_and_the_write_counts_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    saved()
    monkeypatch.setattr("trainlet.client.stores.s3.TIMEOUT", "300ms")
    server.spared = 3  # the commit is what gets no answer
    server.troubles = [("PUT", NEVER, "", done)]
    saved(2, 2)
    assert server.troubles == [] and restored(3) == (2, 2.0)
    assert [one.step for one in list_checkpoints(S3Store("bucket"), PREFIX)] == [2, 1]


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (409, "ConditionalRequestConflict"), (0, "cut")])
def test_I15_a_store_that_stays_bad_fails_the_save_in_words_and_the_next_one_works(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    monkeypatch.setattr("trainlet.client.stores.s3.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("trainlet_functions.checkpoints.log.PUT_TRIES", 1)
    made = saved()
    server.troubles = [("PUT", status, code, False)] * 6
    with pytest.raises(PlatformError, match=r"s3://bucket failed on 'runs/r.train/.*AWS_"):
        made.save(2)
    assert server.troubles == []
    made.save(3)
    assert [one.step for one in list_checkpoints(S3Store("bucket"), PREFIX)] == [3, 1]


def test_I15_expired_credentials_are_named_with_the_place(server: Server) -> None:
    server.troubles = [("PUT", 403, "ExpiredToken", False)] * 50
    with pytest.raises(PlatformError, match=r"s3://bucket.*ExpiredToken|ExpiredToken.*AWS_"):
        saved()


def test_I15_a_full_disk_is_said_and_what_was_there_stays(tmp_path: Path) -> None:
    import resource

    store = open_store(str(tmp_path / "store"))
    made = Checkpointer(store, PREFIX, 1)
    weights = np.zeros(200_000)
    made.register(weights=weights)
    made.save(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        weights[:] = 2
        with pytest.raises(PlatformError, match=r"step|store"):
            made.save(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [one.step for one in list_checkpoints(store, PREFIX)] == [1] and verify(store, PREFIX) == []
    made.save(3)
    assert list_checkpoints(store, PREFIX)[0].step == 3


def test_I15_a_store_that_is_slow_holds_no_training_step_up(server: Server) -> None:
    weights = np.zeros(5)
    with tl.checkpoint("slow", store="s3://bucket", every=1e-6) as ck:
        ck.register(weights=weights)
        assert ck.restore() is None
        server.gate.clear()
        for step in range(1, 200):  # each would wait for ever if it waited for the store
            weights[:] = step
            ck.step(step)
        assert not any("/manifests/" in key for key in server.objects), "nothing is committed yet"
        server.gate.set()
        ck.wait()
        assert ck.save(200) is None
    assert list_checkpoints(S3Store("bucket"), "runs/slow")[0].step == 200


def test_I18_clocks_that_are_hours_apart_change_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    for epoch, hours in ((1, 40), (2, -30), (3, 0)):
        clock = ManualClock(wall_ns=(1_800_000_000 + hours * 3600) * 10**9)
        weights = np.zeros(3)
        made = Checkpointer(store, PREFIX, epoch, clock=clock)
        made.register(weights=weights)
        start = made.restore()
        assert (start.step if start else 0) == (epoch - 1) * 10
        weights[:] = epoch
        made.save(epoch * 10)
    assert list_checkpoints(store, PREFIX)[0].step == 30


def test_I20_two_runs_under_one_prefix_do_not_meet(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    for name, value in (("r.train", 1.0), ("r.train2", 2.0), ("r", 3.0)):
        weights = np.full(3, value)
        made = Checkpointer(store, f"runs/{name}", 1)
        made.register(weights=weights)
        for step in range(1, 6):
            made.save(step)
    for name, value in (("r.train", 1.0), ("r.train2", 2.0), ("r", 3.0)):
        weights = np.zeros(3)
        made = Checkpointer(store, f"runs/{name}", 2)
        made.register(weights=weights)
        assert made.restore() is not None and set(weights) == {value}
        assert verify(store, f"runs/{name}") == []
