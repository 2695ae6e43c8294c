"""The lease is renewed on two connections by turns, over cuts; the last words go out on the quiet one without waiting."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trainlet.client import ApiUnreachable
from trainlet.core import wire
from trainlet_pipelines.pods.leases import Lease

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers requests on a socket; `cut` ends a connection after so many bytes of the next reply."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: queue.Queue[tuple[int, str, Any]] = queue.Queue()
        self.tokens: list[str] = []
        self.cut: int | None = None
        self.deaf = False  # requests are read and not answered
        self._number = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                channel, _ = self._listener.accept()
                self._open.append(channel)
                threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        number = 0
        with contextlib.suppress(OSError), channel.makefile("rb") as stream:
            while line := stream.readline():
                headers = {}
                while (header := stream.readline().strip()) != b"":
                    name, _, value = header.partition(b": ")
                    headers[name.lower()] = value
                token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
                if not token.startswith("secret"):
                    return  # somebody else, who looks for the former owner of this port
                self.tokens.append(token)
                if number == 0:
                    self._number = number = self._number + 1
                body = json.loads(stream.read(int(headers[b"content-length"])))
                self.requests.put((number, line.split()[1].decode(), body))
                if self.deaf:
                    continue
                if self.cut is not None:
                    at, self.cut = self.cut, None
                    channel.sendall(REPLY[:at])
                    channel.shutdown(socket.SHUT_RDWR)
                    return
                channel.sendall(REPLY)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def started(server: Server, lease_s: float = 1.0) -> Lease:
    lease = Lease(server.url, lambda: "secret", wire.DispatcherLease(id="pod", lease_s=lease_s), "kfp-task")
    lease.start()
    return lease


def test_renewals_go_out_on_two_connections_by_turns(server: Server) -> None:
    lease = started(server)
    seen = [server.requests.get(timeout=10) for _ in range(4)]
    lease.close()
    assert [number for number, _, _ in seen] == [1, 2, 1, 2]
    assert {path for _, path, _ in seen} == {"/v1/dispatchers/pod:heartbeat"}
    assert seen[0][2] == {"id": "pod", "lease_s": 1.0}


@pytest.mark.parametrize("at", range(len(REPLY)))
def test_a_connection_that_is_cut_at_any_byte_of_the_reply_is_made_anew(at: int, server: Server) -> None:
    server.cut = at
    lease = started(server)
    first, second = (server.requests.get(timeout=10) for _ in range(2))
    lease.close()
    assert (first[0], second[0]) == (1, 2) and first[1:] == second[1:]


def test_the_last_words_are_one_write_on_an_open_connection(server: Server) -> None:
    lease = started(server, lease_s=3600.0)
    used = {server.requests.get(timeout=10)[0] for _ in range(2)}
    lease.say_farewell()
    number, path, body = server.requests.get(timeout=10)
    assert (number in used, path) == (True, "/v1/tasks/kfp-task:cancel")
    assert body["reason"] == "the dispatch pod was told to end"
    lease.close()


def test_the_last_words_do_not_wait_behind_a_renewal_without_an_answer(server: Server) -> None:
    lease = started(server)
    for _ in range(2):
        server.requests.get(timeout=10)
    server.deaf = True
    waiting = server.requests.get(timeout=10)[0]
    lease.say_farewell()
    number, path, _ = server.requests.get(timeout=10)
    assert path == "/v1/tasks/kfp-task:cancel"
    assert number != waiting
    server.close()
    lease.close()


def test_a_renewed_token_is_used_by_the_next_renewal_and_the_last_words(server: Server) -> None:
    given = iter(["secret-1"])
    lease = Lease(
        server.url, lambda: next(given, "secret-2"), wire.DispatcherLease(id="pod", lease_s=3600.0), "kfp-task"
    )
    lease.start()
    for _ in range(2):
        server.requests.get(timeout=10)
    lease.say_farewell()
    assert server.requests.get(timeout=10)[1] == "/v1/tasks/kfp-task:cancel"
    lease.close()
    assert server.tokens == ["secret-1", "secret-2", "secret-2"]


def test_a_token_that_cannot_be_read_for_a_moment_ends_no_lease(server: Server) -> None:
    answers = iter([ApiUnreachable("no file"), "secret"])

    def token() -> str:
        found = next(answers, "secret")
        if isinstance(found, Exception):
            raise found
        return found

    lease = Lease(server.url, token, wire.DispatcherLease(id="pod", lease_s=1.0), "kfp-task")
    lease.start()
    assert server.requests.get(timeout=10)[1] == "/v1/dispatchers/pod:heartbeat"
    lease.close()


def test_without_a_connection_there_are_no_last_words_and_no_error() -> None:
    lease = Lease("http://127.0.0.1:9", lambda: None, wire.DispatcherLease(id="pod"), "kfp-task")
    lease.say_farewell()
