"""W3C trace context: one trace from whoever asked for a task, over the event and the attempt, to the user's process.

A caller that is traced itself sends `traceparent` when it creates a task, and the task keeps it as a label. Any other
task belongs to the trace of its run, whose id follows from the run's: nothing has to be stored or agreed upon, and
every process that knows a task knows its trace. Span ids follow from what they stand for in the same way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from trainlet.core.models import sha256_hex

LABEL = "trainlet.dev/traceparent"
ENVIRONMENT = "TRACEPARENT"
HEADER = "traceparent"
_FORMAT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class Trace:
    """A place in a trace: what happens next is a child of the span."""

    trace_id: str
    span_id: str
    flags: str = "01"

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    def span(self, *names: object) -> Trace:
        """Return the span of something below this one; the same names give the same span."""
        return Trace(self.trace_id, _digest(self.trace_id, *names)[:16], self.flags)


def parse(text: str | None) -> Trace | None:
    """Read a `traceparent`; None for what is none: a wrong one counts for nothing (W3C Trace Context, section 4.3)."""
    found = _FORMAT.fullmatch(text) if text is not None and len(text) <= 512 else None
    if found is None or ((text or "").startswith("00-") and found[4]):
        return None
    return Trace(found[1], found[2], found[3])


def of_task(run_id: str, key: str, labels: Mapping[str, str]) -> Trace:
    """Return the span of a task, in its caller's trace or else in its run's."""
    caller = parse(labels.get(LABEL))
    trace = caller or Trace(_digest("run", run_id)[:32], _digest("run", run_id)[32:48])
    return trace.span("task", key)


def of_attempt(run_id: str, key: str, labels: Mapping[str, str], epoch: int) -> Trace:
    """Return the span of one attempt of a task."""
    return of_task(run_id, key, labels).span("attempt", epoch)


def current(environ: Mapping[str, str]) -> Trace | None:
    """Return where this process is: in the span that OpenTelemetry has open, or in what its environment says."""
    opentelemetry = sys.modules.get("opentelemetry.trace")  # whoever has not imported it has no span open
    if opentelemetry is not None:
        found = opentelemetry.get_current_span().get_span_context()
        if found.is_valid:
            return Trace(f"{found.trace_id:032x}", f"{found.span_id:016x}", f"{int(found.trace_flags):02x}")
    return parse(environ.get(ENVIRONMENT))


def _digest(*names: object) -> str:
    return sha256_hex("\0".join(map(str, names)).encode())
