"""Spans for OpenTelemetry: a task is one, each attempt one below it, with its set-up and its run below that.

Ids follow from what a span stands for (`trainlet.core.traces`), so API, worker and the user's own process agree on them
without telling each other: a step that starts spans of its own finds them below its attempt. OpenTelemetry's usual
variables say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`); without one nothing is imported and nothing is sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from trainlet.core import traces
from trainlet.core.wire import ClaimReply, FinishRequest, TaskView

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_LOG = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CLOSE_MS = 3000


class Spans:
    """Sends spans in the background; what cannot be sent is dropped, because no work may wait for a collector."""

    def __init__(self, exporter: SpanExporter, service: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._processor = BatchSpanProcessor(exporter)
        self._resource = Resource.create({"service.name": service})

    @classmethod
    def from_environment(cls, service: str, environ: Mapping[str, str]) -> Spans | None:
        """Return what the environment asks for, or None; OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none ask for nothing."""
        off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
        if off or not any(environ.get(name) for name in ENDPOINTS):
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            _LOG.warning("%s is set, but OpenTelemetry is not installed: pip install 'trainlet[otel]'", ENDPOINTS[-1])
            return None
        return cls(OTLPSpanExporter(), environ.get("OTEL_SERVICE_NAME") or service)

    def ended(self, claim: ClaimReply, finish: FinishRequest) -> None:
        """Send the spans of an attempt that has ended; returns at once."""
        task, end_ns = claim.task, time.time_ns()
        above = traces.of_task(task.run_id, task.key, task.labels)
        span = traces.of_attempt(task.run_id, task.key, task.labels, claim.epoch)
        about: dict[str, str | int] = {**_about(task), "trainlet.epoch": claim.epoch, "trainlet.worker": finish.worker}
        about["trainlet.outcome"] = finish.outcome
        begin_ns = claim.wall_anchor_ns
        marks = [(name, begin_ns + at_ns) for name, at_ns in (finish.usage[-1].phases if finish.usage else ())]
        for (name, from_ns), (_, until_ns) in zip(marks, [*marks[1:], ("", end_ns)], strict=False):
            self._send(name, span.span("phase", name), span, (from_ns, until_ns), about)
        failed = finish.error.message if finish.outcome == "failed" and finish.error is not None else None
        self._send(f"attempt {task.function}", span, above, (begin_ns, end_ns), about, failed)

    def task_ended(self, task: TaskView) -> None:
        """Send the span of a task that is over; returns at once."""
        span = traces.of_task(task.run_id, task.key, task.labels)
        caller = traces.parse(task.labels.get(traces.LABEL))
        ends = [round(datetime.fromisoformat(at).timestamp() * 1e9) for at in (task.created_at, task.updated_at)]
        failed = task.error.message if task.state == "failed" and task.error is not None else None
        about: dict[str, str | int] = {**_about(task), "trainlet.state": task.state}
        self._send(f"task {task.function}", span, caller, (ends[0], ends[1]), about, failed)

    def close(self) -> None:
        """Send what is left, for a short while."""
        self._processor.force_flush(_CLOSE_MS)
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # the library leaves it so

    def _send(
        self,
        name: str,
        place: traces.Trace,
        above: traces.Trace | None,
        times: tuple[int, int],
        about: Mapping[str, str | int],
        failed: str | None = None,
    ) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan

        def context(of: traces.Trace) -> trace.SpanContext:
            flags = trace.TraceFlags(int(of.flags, 16))
            return trace.SpanContext(int(of.trace_id, 16), int(of.span_id, 16), is_remote=False, trace_flags=flags)

        status = trace.Status(trace.StatusCode.OK if failed is None else trace.StatusCode.ERROR, failed)
        span = ReadableSpan(
            name,
            context=context(place),
            parent=None if above is None else context(above),
            resource=self._resource,
            attributes=about,
            status=status,
            start_time=times[0],
            end_time=max(times),
        )
        self._processor.on_end(span)


def _about(task: TaskView) -> dict[str, str | int]:
    return {
        "trainlet.project": task.project,
        "trainlet.run": task.run_id,
        "trainlet.task": task.key,
        "trainlet.function": task.function,
    }
