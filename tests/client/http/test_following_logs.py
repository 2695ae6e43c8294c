"""Log lines are streamed, each once and in order, also over connections that break."""

from __future__ import annotations

import pytest

from trainlet.client import ApiUnreachable, http
from trainlet.core import wire
from trainlet.core.errors import NotFoundError

END = b"event: end\ndata: {}\n\n"


def line(seq: int) -> bytes:
    text = wire.LogLine(seq=seq, task="r.a", epoch=1, at="", text=f"line {seq}").model_dump_json()
    return f"id: {seq}\ndata: {text}\n\n".encode()


def test_lines_come_until_the_end(server, client):
    server.answers = [line(1) + b": still here\n\n" + line(2) + END]
    assert [one.text for one in client.follow_logs("r")] == ["line 1", "line 2"]
    assert server.requests[0].headers["accept"] == "text/event-stream"


def test_a_stream_that_ends_early_goes_on_where_it_stopped(server, client):
    server.answers = [line(1) + line(2), "drop", (503, {}), line(3) + END]
    assert [one.seq for one in client.follow_logs("r", task="r.a")] == [1, 2, 3]
    assert [request.headers["last-event-id"] for request in server.requests] == ["0", "2", "2", "2"]
    assert all(request.path == "/v1/runs/r/logs?task=r.a" for request in server.requests)


def test_an_unknown_run_is_an_error_at_once(server, client):
    server.answers = [server.problem("not-found", 404, "There is no run r.")]
    with pytest.raises(NotFoundError, match="no run r"):
        list(client.follow_logs("r"))


def test_an_api_that_stays_away_ends_the_stream_with_an_error(server, client, monkeypatch):
    monkeypatch.setattr(http, "PATIENCE_S", 0.1)
    server.answers = [line(1), "drop"]
    seen: list[int] = []
    with pytest.raises(ApiUnreachable):
        for one in client.follow_logs("r"):
            seen.append(one.seq)
    assert seen == [1]
