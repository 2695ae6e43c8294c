"""The news that an attempt has ended, sent where K_SINK says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from trainlet.core.errors import UserError
from trainlet_functions.worker.notices import Notices


class Sink:
    """Hears events. `answers` are the statuses of the first ones, then 202."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], Any]] = []
        self.answers: list[int] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sink.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(sink.answers.pop(0) if sink.answers else 202)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/news"
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def sink() -> Iterator[Sink]:
    found = Sink()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_the_end_of_an_attempt_is_told_once_with_what_the_overrides_add(bench: Any, sink: Sink) -> None:
    key = bench.offer("def f(): return 7")
    bench.start(K_SINK=sink.url, K_CE_OVERRIDES='{"extensions": {"team": "vision"}}')
    bench.finish()
    bench.eventually(lambda: sink.heard)
    ((headers, data),) = sink.heard
    assert (headers["ce-type"], headers["ce-source"]) == ("dev.trainlet.step.finished", "/projects/p")
    assert (headers["ce-id"], headers["ce-subject"], headers["ce-team"]) == (f"{key}.1.succeeded", key, "vision")
    assert (data["task"], data["epoch"], data["outcome"]) == (key, 1, "succeeded")


def test_a_sink_that_fails_is_tried_again_and_keeps_nobody_from_work(bench: Any, sink: Sink) -> None:
    sink.answers = [503, 503]
    bench.offer("def f(): return 7")
    second = bench.offer("def f(): return 8")
    bench.start(K_SINK=sink.url)
    bench.finish()
    bench.eventually(lambda: not bench.api.offered, what="the second is claimed")
    bench.eventually(lambda: len(sink.heard) == 4, what="both are told")
    assert {headers["ce-subject"] for headers, _ in sink.heard} == {"run1.f", second}


def test_a_job_tells_before_it_ends(bench: Any, sink: Sink, tmp_path: Path) -> None:
    key = bench.offer("def f(): return 7")
    folder = bench.event_file(tmp_path / "mount", key)
    assert bench.start(K_EXECUTION_MODE="batch", K_EVENT_PATH=folder, K_SINK=sink.url).wait(30) == 0
    assert [headers["ce-id"] for headers, _ in sink.heard] == [f"{key}.1.succeeded"]


def test_an_attempt_that_was_fenced_tells_nothing(bench: Any, sink: Sink) -> None:
    bench.offer("def f():\n    import time\n    time.sleep(30)")
    last = bench.offer("def f(): return 8")
    worker = bench.start(K_SINK=sink.url)
    bench.eventually(lambda: bench.api.heartbeats)
    bench.api.fenced = True
    bench.eventually(lambda: not bench.api.offered, what="it goes on with the next")
    bench.api.fenced = False
    worker.terminate()
    worker.wait(30)
    assert {headers["ce-subject"] for headers, _ in sink.heard} <= {last}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("K_SINK", "broker.default"),
        ("K_CE_OVERRIDES", "[]"),
        ("K_CE_OVERRIDES", "{"),
        ("K_CE_OVERRIDES", '{"extensions": {"Team": "vision"}}'),
        ("K_CE_OVERRIDES", '{"extensions": {"team": "a\\nb"}}'),
    ],
)
def test_what_is_no_sink_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UserError, match=name):
        Notices.from_environment({"K_SINK": "http://broker/p/default", name: value})


def test_without_a_sink_nothing_is_told() -> None:
    assert Notices.from_environment({"K_CE_OVERRIDES": "{}"}) is None
