"""Tasks and attempts as OpenTelemetry spans, sent to a collector by OTLP, with ids on which all processes agree."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainlet.core import traces
from trainlet.core.specs import Entry, FunctionSpec
from trainlet.core.wire import ClaimReply, Device, ErrorInfo, FinishRequest, LeaseEvent, TaskView
from trainlet_functions.spans import Spans

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASK = TaskView(
    key="r.f", project="p", run_id="r", node="f", function="f", digest="0" * 64, state="running", epoch=2,
    created_at="2026-01-01T00:00:00Z", updated_at="2026-01-01T00:01:00Z", labels={traces.LABEL: CALLER},
)  # fmt: skip
SPEC = FunctionSpec(name="f", bundle="a" * 64, entry=Entry(module="m", qualname="f"))


def claim(task: TaskView = TASK) -> ClaimReply:
    return ClaimReply(
        task=task, spec=SPEC, args={}, epoch=2, token="t", devices=[], lease_s=15, heartbeat_s=2, wall_anchor_ns=10**18,
        store_url="s",
    )  # fmt: skip


class Collector:
    """Takes spans as an OTLP collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.status = 200

    def handler(self) -> type[BaseHTTPRequestHandler]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.status == 200:
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        collector.services |= {one.value.string_value for one in resource.resource.attributes
                                               if one.key == "service.name"}  # fmt: skip
                        collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        return Handler

    def named(self, name: str) -> Any:
        (found,) = (span for span in self.spans if span.name == name)
        return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    found = Collector()
    server = ThreadingHTTPServer(("127.0.0.1", 0), found.handler())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def spans(environ: dict[str, str] | None = None) -> Spans | None:
    import os

    return Spans.from_environment("trainlet-worker", os.environ if environ is None else environ)


def test_an_attempt_is_below_its_task_and_the_task_below_its_caller(collector: Collector) -> None:
    sender = spans()
    assert sender is not None
    device = Device(uuid="GPU-1", sku="A100-80GB")
    usage = LeaseEvent(
        id="l:1", kind="close", lease="l", seq=1, task="r.f", epoch=2, run_id="r", function="f", device=device,
        anchor_ns=10**18, elapsed_ns=9 * 10**9, phases=(("setup", 0), ("run", 4 * 10**9)),
    )  # fmt: skip
    sender.ended(claim(), FinishRequest(worker="ns.pod", outcome="succeeded", usage=[usage]))
    sender.task_ended(TASK.model_copy(update={"state": "succeeded"}))
    sender.close()
    task, attempt = collector.named("task f"), collector.named("attempt f")
    assert {span.trace_id.hex() for span in collector.spans} == {"0af7651916cd43dd8448eb211c80319c"}
    assert task.parent_span_id.hex() == "b7ad6b7169203331"
    assert attempt.parent_span_id == task.span_id
    assert attempt.span_id.hex() == traces.of_attempt("r", "r.f", TASK.labels, 2).span_id, (
        "what the step's process is told"
    )
    setup, run = collector.named("setup"), collector.named("run")
    assert setup.parent_span_id == run.parent_span_id == attempt.span_id
    assert (setup.start_time_unix_nano, setup.end_time_unix_nano) == (10**18, 10**18 + 4 * 10**9)
    assert task.end_time_unix_nano - task.start_time_unix_nano == 60 * 10**9
    about = {one.key: one.value.string_value or one.value.int_value for one in attempt.attributes}
    assert about == {"trainlet.project": "p", "trainlet.run": "r", "trainlet.task": "r.f", "trainlet.function": "f",
                     "trainlet.epoch": 2, "trainlet.worker": "ns.pod", "trainlet.outcome": "succeeded"}  # fmt: skip
    assert collector.services == {"trainlet-worker"}


def test_a_failure_is_an_error_with_its_words(collector: Collector) -> None:
    sender = spans()
    assert sender is not None
    error = ErrorInfo(kind="user", type="ValueError", message="no such file")
    sender.ended(claim(), FinishRequest(worker="w", outcome="failed", error=error))
    sender.task_ended(TASK.model_copy(update={"state": "failed", "error": error}))
    sender.close()
    assert [(one.status.code, one.status.message) for one in collector.spans] == [(2, "no such file")] * 2


def test_what_the_caller_does_not_sample_is_not_sent(collector: Collector) -> None:
    sender = spans()
    assert sender is not None
    unsampled = TASK.model_copy(update={"labels": {traces.LABEL: CALLER[:-2] + "00"}})
    sender.ended(claim(unsampled), FinishRequest(worker="w", outcome="succeeded"))
    sender.close()
    assert collector.spans == []


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_a_collector_nothing_is_sent(environ: dict[str, str]) -> None:
    assert spans(environ) is None


def test_a_collector_without_the_extra_is_a_warning_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        assert spans({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}) is None
    assert "pip install 'trainlet[otel]'" in caplog.text
