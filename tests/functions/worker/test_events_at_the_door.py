"""What a worker lets in: signed wake-ups of its own function, and nothing else."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlet.core import envelopes
from trainlet_functions import wakeups
from trainlet_functions.signatures import Signer
from trainlet_functions.worker import server

DATA = {"task": "r.f", "epoch": 1, "function": "f", "digest": "0" * 64, "bundle": "1" * 64, "project": "p"}


def event(signer: Signer, data: dict[str, Any] = DATA, **changes: str) -> tuple[dict[str, str], bytes]:
    body = json.dumps(data, separators=(",", ":")).encode()
    signed = envelopes.signed_bytes(envelopes.WAKE_UP, "/projects/p", "r.f.1.1", "r.f", body)
    headers = {
        "ce-specversion": "1.0",
        "ce-type": envelopes.WAKE_UP,
        "ce-source": "/projects/p",
        "ce-id": "r.f.1.1",
        "ce-subject": "r.f",
        "ce-trainletsig": signer.sign(signed),
        "content-type": "application/json",
    }
    return {**headers, **{name.replace("_", "-"): value for name, value in changes.items()}}, body


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer.load(tmp_path / "key")


def check(signer: Signer, headers: dict[str, str], body: bytes) -> tuple[str, int]:
    found = wakeups.read(headers, body, public_key=signer.public_key)
    found.require("p", "f")
    return found.task, found.epoch


def refused(signer: Signer, headers: dict[str, str], body: bytes) -> int:
    with pytest.raises(wakeups.Refused) as caught:
        check(signer, headers, body)
    return caught.value.status


def test_a_signed_wake_up_is_taken(signer: Signer) -> None:
    assert check(signer, *event(signer)) == ("r.f", 1)


def test_a_structured_wake_up_is_taken(signer: Signer) -> None:
    headers, _ = event(signer)
    whole = {name.removeprefix("ce-"): value for name, value in headers.items() if name.startswith("ce-")}
    body = json.dumps({**whole, "datacontenttype": "application/json", "data": DATA}).encode()
    assert check(signer, {"content-type": "application/cloudevents+json"}, body) == ("r.f", 1)


def test_S1_an_unsigned_event_is_refused(signer: Signer) -> None:
    headers, body = event(signer)
    del headers["ce-trainletsig"]
    assert refused(signer, headers, body) == 401


def test_S1_an_event_that_another_signed_is_refused(signer: Signer, tmp_path: Path) -> None:
    assert refused(signer, *event(Signer.load(tmp_path / "foreign"))) == 403


@pytest.mark.parametrize("field", ["task", "epoch", "bundle"])
def test_S1_a_changed_event_is_refused(signer: Signer, field: str) -> None:
    headers, _ = event(signer)
    assert refused(signer, headers, json.dumps({**DATA, field: 2}, separators=(",", ":")).encode()) == 403


def test_S1_an_event_for_another_function_is_refused(signer: Signer) -> None:
    assert refused(signer, *event(signer, {**DATA, "function": "g"})) == 403


def test_an_event_without_an_id_is_refused(signer: Signer) -> None:
    headers, body = event(signer)
    del headers["ce-id"]
    with pytest.raises(wakeups.Refused, match="it has no id") as caught:
        check(signer, headers, body)
    assert caught.value.status == 400
    whole = {name.removeprefix("ce-"): value for name, value in headers.items() if name.startswith("ce-")}
    assert refused(signer, {"content-type": "application/cloudevents+json"}, json.dumps(whole).encode()) == 400


def test_a_mebibyte_of_attributes_is_refused_in_either_mode(signer: Signer) -> None:
    headers, body = event(signer, **{f"ce-x{number}": "x" * 40_000 for number in range(26)})
    with pytest.raises(wakeups.Refused, match=r"attributes have 104\d{4} characters, and at most 65536") as caught:
        check(signer, headers, body)
    assert caught.value.status == 413
    whole = {name.removeprefix("ce-"): value for name, value in headers.items() if name.startswith("ce-")}
    structured = json.dumps({**whole, "data": DATA}).encode()
    assert refused(signer, {"content-type": "application/cloudevents+json"}, structured) == 413


def test_what_is_no_event_is_refused(signer: Signer) -> None:
    assert refused(signer, {"content-type": "application/json"}, b"{}") == 400


class Woken:
    """A worker that answers as it is told."""

    def __init__(self) -> None:
        self.status = 202
        self.calls: list[tuple[str, int]] = []
        self.senders: list[str | None] = []

    def wake(self, task: str, epoch: int, sender: str | None = None) -> int:
        self.senders.append(sender)
        self.calls.append((task, epoch))
        return self.status

    def ready(self) -> bool:
        return self.status != 503


@pytest.fixture
def door(signer: Signer) -> Iterator[tuple[Woken, http.client.HTTPConnection]]:
    worker = Woken()
    listening = server.serve(worker, host="127.0.0.1", port=0, public_key=signer.public_key, project="p", function="f")
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", listening.server_address[1])
    yield worker, connection
    connection.close()
    listening.shutdown()
    thread.join()
    listening.server_close()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes]:
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("status", [202, 503])
def test_the_answer_to_an_event_has_an_empty_body(door: Any, signer: Signer, status: int) -> None:
    worker, connection = door
    worker.status = status
    headers, body = event(signer)
    assert ask(connection, "POST", "/", body, **headers) == (status, b"")
    assert worker.calls == [("r.f", 1)]


def test_health_follows_the_worker(door: Any) -> None:
    worker, connection = door
    assert ask(connection, "GET", "/health/liveness")[0] == 200
    assert ask(connection, "GET", "/health/readiness")[0] == 200
    worker.status = 503
    assert ask(connection, "GET", "/health/readiness")[0] == 503


def test_a_body_of_more_than_a_mebibyte_is_refused(door: Any) -> None:
    worker, connection = door
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(2 * 1024 * 1024))
    connection.endheaders()
    assert connection.getresponse().status == 413
    assert worker.calls == []


def test_attributes_without_end_are_refused_with_words(door: Any, signer: Signer) -> None:
    worker, connection = door
    headers, body = event(signer, ce_x="x" * 1024 * 1024)
    status, said = ask(connection, "POST", "/", body, **headers)
    assert status == 431 and b"more than 65536 bytes" in said
    headers, body = event(signer, **{f"ce_x{number}": "x" for number in range(80)})
    status, said = ask(connection, "POST", "/", body, **headers)
    assert status == 431 and b"at most 64 are taken" in said
    assert worker.calls == []


AUDIENCE = "trainlet.dev/function/trainlet-p/f"


def token(**claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "signature"])


@pytest.fixture
def guarded(signer: Signer) -> Iterator[tuple[Woken, http.client.HTTPConnection]]:
    """Serve a worker whose events carry the identity of their Trigger."""
    worker = Woken()
    arguments: dict[str, Any] = {"public_key": signer.public_key, "project": "p", "function": "f"}
    listening = server.serve(worker, host="127.0.0.1", port=0, audience=AUDIENCE, **arguments)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", listening.server_address[1])
    yield worker, connection
    connection.close()
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.mark.parametrize("aud", [AUDIENCE, ["other", AUDIENCE]])
def test_the_identity_of_an_event_goes_with_the_claim(guarded: Any, signer: Signer, aud: Any) -> None:
    worker, connection = guarded
    headers, body = event(signer)
    sent = token(aud=aud, sub="system:serviceaccount:trainlet-p:f-oidc")
    assert ask(connection, "POST", "/", body, **headers, Authorization=f"Bearer {sent}") == (202, b"")
    assert worker.senders == [sent]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (None, "carries no token; this worker wants one for trainlet.dev/function/trainlet-p/f"),
        ("Basic dTpw", "carries no token"),
        (f"Bearer {'x' * 20_000}", "carries no token"),
        (f"Bearer {token(aud='trainlet.dev/function/trainlet-p/g')}", "not one for trainlet.dev/function/trainlet-p/f"),
        (f"Bearer {token(sub='nobody')}", "not one for"),
        ("Bearer a.b.c", "not one for"),
        ("Bearer a", "not one for"),
        (f"Bearer a.{base64.urlsafe_b64encode(b'[]').decode()}.c", "not one for"),
        (f"Bearer {token(aud={'a': 1})}", "not one for"),
    ],
)  # fmt: skip
def test_S1_a_signed_event_that_nobody_known_brings_is_refused(
    guarded: Any, signer: Signer, sent: str | None, said: str
) -> None:
    worker, connection = guarded
    headers, body = event(signer)
    more = {} if sent is None else {"Authorization": sent}
    status, words = ask(connection, "POST", "/", body, **headers, **more)
    assert status == 401 and said in words.decode()
    assert worker.calls == []


@pytest.fixture
def holding(signer: Signer) -> Iterator[int]:
    """Serve a worker in a pod, on every address of this machine; returns the port."""
    listening = server.serve(
        Woken(),
        host="0.0.0.0",
        port=0,
        public_key=signer.public_key,
        project="p",
        function="f",
        hold=("/hold", lambda: iter([b"."])),
    )
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield listening.server_address[1]
    listening.shutdown()
    thread.join()
    listening.server_close()


def hold(port: int, address: str = "127.0.0.1", **headers: str) -> int:
    connection = http.client.HTTPConnection(address, port)
    status, _ = ask(connection, "GET", "/hold", **headers)
    connection.close()
    return status


def address_of_this_machine() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses the address that would send
        except OSError:
            return None
        return str(probe.getsockname()[0])


def test_a_hold_comes_from_the_pod_itself(holding: int) -> None:
    assert hold(holding) == 200
    assert hold(holding, **{"X-Forwarded-For": "127.0.0.1"}) == 200, "as its queue-proxy passes it on"
    outside = address_of_this_machine()
    if outside is not None:
        assert hold(holding, outside) == 404


@pytest.mark.parametrize("hops", ["10.0.0.7", "127.0.0.1, 10.0.0.7", "127.0.0.1,", "localhost", "::1, 10.0.0.7"])
def test_a_hold_that_queue_proxy_passes_on_for_another_is_none(holding: int, hops: str) -> None:
    expected = 200 if hops.endswith(",") else 404
    assert hold(holding, **{"X-Forwarded-For": hops}) == expected
