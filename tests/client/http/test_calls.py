"""What the client sends, and what it makes of the answers."""

from __future__ import annotations

import inspect
import socket
import threading

import pytest

from trainlet.client import ApiUnreachable, FencedError, ProtocolMismatch, TakenError
from trainlet.client.errors import ApiFailed
from trainlet.client.http import Client
from trainlet.core import wire
from trainlet.core.errors import AccessError, ConflictError, NotFoundError, PlatformError, UserError

RUN = {"id": "r-1", "project": "p", "pipeline": "g", "state": "running", "created_at": "2026-01-01T00:00:00.000Z"}
TASK = {
    "key": "r-1.a", "project": "p", "run_id": "r-1", "node": "a", "function": "f", "digest": "0" * 64,
    "state": "queued", "created_at": "", "updated_at": "",
}  # fmt: skip


def test_each_request_says_who_asks_and_which_protocol(server, client):
    server.answers = [(200, RUN)]
    assert client.get_run("r-1").state == "running"
    sent = server.requests[0]
    assert (sent.method, sent.path) == ("GET", "/v1/runs/r-1")
    assert sent.headers["authorization"] == "Bearer secret-token"
    assert sent.headers["trainlet-protocol"] == str(wire.PROTOCOL)


def test_a_token_that_is_renewed_in_its_file_is_the_one_of_the_next_call(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    client = Client(server.url, file)
    server.answers = [(200, RUN)]
    client.get_run("r-1")
    file.write_text("second\n")
    client.get_run("r-1")
    client.heartbeat("r-1.a", 3, "attempt-token", wire.HeartbeatRequest(worker="w"))
    said = [one.headers["authorization"] for one in server.requests]
    assert said == ["Bearer first", "Bearer second", "Bearer attempt-token"]
    file.unlink()
    with pytest.raises(ApiUnreachable, match=r"cannot be read from .*token.*Is it mounted into this pod\?"):
        client.get_run("r-1")
    client.close()


def test_what_an_attempt_says_carries_the_attempts_own_token(server, client):
    server.answers = [(200, {"directive": "continue"})]
    client.heartbeat("r-1.a", 3, "attempt-token", wire.HeartbeatRequest(worker="w"))
    assert server.requests[0].path == "/v1/attempts/r-1.a/3:heartbeat"
    assert server.requests[0].headers["authorization"] == "Bearer attempt-token"


@pytest.mark.parametrize(
    ("slug", "status", "error"),
    [
        ("fenced", 409, FencedError), ("taken", 409, TakenError), ("conflict", 409, ConflictError),
        ("not-found", 404, NotFoundError), ("unauthorized", 401, AccessError), ("forbidden", 403, AccessError),
        ("protocol", 400, ProtocolMismatch), ("invalid", 422, UserError), ("internal", 500, ApiFailed),
    ],
)  # fmt: skip
def test_a_problem_is_the_error_that_says_what_to_do(server, client, slug, status, error):
    server.answers = [server.problem(slug, status, "What happened.", "What to do.")]
    with pytest.raises(error, match=r"What happened\. What to do\.") as caught:
        client.get_run("r-1")
    assert type(caught.value) is error


def test_errors_that_a_person_cannot_mend_are_platform_errors():
    for error in (ApiUnreachable, ApiFailed, TakenError, FencedError, ProtocolMismatch):
        assert issubclass(error, PlatformError)


def test_a_broken_connection_is_tried_again(server, client):
    server.answers = ["drop", "drop", (200, RUN)]
    assert client.get_run("r-1").id == "r-1"
    assert len(server.requests) == 3


def test_an_api_behind_a_proxy_that_cannot_reach_it_is_tried_again(server, client):
    server.answers = [(503, {}), (502, {}), (200, RUN)]
    assert client.get_run("r-1").id == "r-1"


def test_a_heartbeat_is_not_repeated_because_the_next_one_says_more(server, client):
    server.answers = ["drop"]
    with pytest.raises(ApiUnreachable):
        client.heartbeat("r-1.a", 1, "t", wire.HeartbeatRequest(worker="w"))
    assert len(server.requests) == 1


def test_nobody_there_is_unreachable_after_the_patience_and_names_the_place(make_client):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ApiUnreachable, match=f"{url}.*doctor"):
            make_client(url, retry_s=0.3).get_run("r-1")


def test_an_answer_that_is_no_training_api_is_a_mismatch(server, client):
    server.answers = [(200, {"hello": "world"})]
    with pytest.raises(ProtocolMismatch, match="not a ServiceInfo"):
        client.get_info()


def test_a_page_that_is_no_problem_document_is_still_an_error_with_its_text(server, client):
    server.answers = [(418, "teapot")]
    with pytest.raises(UserError, match="teapot"):
        client.get_run("r-1")


def test_invoke_repeats_itself_under_one_key_so_that_it_starts_once(server, client):
    server.answers = ["drop", (202, TASK)]
    client.invoke("f", wire.Invoke(args={"x": 1}), wait_s=3)
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(server.requests) == 2 and len(keys) == 1
    client.invoke("f", wire.Invoke())
    assert server.requests[-1].headers["idempotency-key"] not in keys
    assert server.requests[0].headers["prefer"] == "wait=3"


def test_nothing_to_claim_is_none(server, client, make_client):
    server.answers = [lambda request: (204, None)]
    body = wire.ClaimRequest(worker="w", nonce="n")
    assert client.claim_next("f", body) is None


def test_listings_follow_their_cursor(server, client):
    view = {"name": "f", "digest": "0" * 64, "created_at": ""}
    spec = {"name": "f", "bundle": "0" * 64, "entry": {"module": "m", "qualname": "f"}}
    server.answers = [
        (200, {"items": [{**view, "spec": spec}], "next": "more"}),
        (200, {"items": [{**view, "name": "g", "spec": spec}], "next": None}),
    ]
    assert [one.name for one in client.list_functions()] == ["f", "g"]
    assert server.requests[1].path == "/v1/functions?cursor=more"


def test_one_client_serves_many_threads(server, client):
    server.answers = [(200, RUN)]
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(client.get_run("r-1").id)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["r-1"] * 16


def test_a_client_follows_an_api_that_moved(server, make_client):
    server.answers = [(200, RUN)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        old = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = make_client(old, "old", revive=lambda: (server.url, "new"))
        assert client.get_run("r-1").id == "r-1"
    assert client.url == server.url and server.requests[0].headers["authorization"] == "Bearer new"


def test_an_api_that_cannot_be_revived_is_unreachable_with_the_reason(make_client):
    def fail() -> tuple[str, str]:
        raise PlatformError("the disk is full")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = make_client(f"http://127.0.0.1:{taken.getsockname()[1]}", revive=fail)
        with pytest.raises(ApiUnreachable, match="the disk is full"):
            client.get_run("r-1")


def test_a_closed_client_is_unreachable_and_does_not_wait(server, client):
    client.close()
    with pytest.raises(ApiUnreachable, match="was closed"):
        client.get_run("r-1")


def test_every_public_method_has_typed_arguments_and_result():
    for name, method in vars(Client).items():
        if not name.startswith("_") and inspect.isfunction(method):
            signature = inspect.signature(method)
            assert signature.return_annotation is not inspect.Signature.empty, name
            assert all(one.annotation for one in signature.parameters.values()), name
