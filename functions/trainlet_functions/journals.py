"""What API and worker say about themselves on stderr: text for a person, or JSON lines for a collector.

`TRAINLET_LOG=json` (the images' default) makes every record one line of JSON, with the run, the task, the epoch and the
trace that it is about where there are some. What a step prints is not here: it goes to the training API.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainlet.core import traces
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import UserError

if TYPE_CHECKING:
    from trainlet.core.wire import ClaimReply, TaskView

VARIABLE = "TRAINLET_LOG"
ABOUT = ("run", "task", "epoch", "trace_id", "span_id")
QUIET = {"httpx": logging.WARNING, "alembic": logging.WARNING, "waitress.queue": logging.ERROR}
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
Context = Callable[[], Mapping[str, Any]]


def install(environ: Mapping[str, str] | None = None, *, context: Context | None = None) -> None:
    """Send the process's log records to stderr in the form that the environment asks for; raises UserError.

    `context` tells what the code that logs is busy with, for records that do not say so themselves.
    """
    form = (os.environ if environ is None else environ).get(VARIABLE) or "text"
    if form not in ("text", "json"):
        raise UserError(f"{VARIABLE}={form!r} is not a form of logs. Set it to 'text' or 'json'.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(context) if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)


def of_attempt(log: logging.Logger, claim: ClaimReply) -> logging.LoggerAdapter[logging.Logger]:
    """Return a logger whose records are about one attempt."""
    return logging.LoggerAdapter(log, about_attempt(claim.task, claim.epoch))


def about_attempt(task: TaskView, epoch: int) -> dict[str, Any]:
    """Return what a record about an attempt carries (`extra=`)."""
    trace = traces.of_attempt(task.run_id, task.key, task.labels, epoch)
    return {
        "run": task.run_id,
        "task": task.key,
        "epoch": epoch,
        "trace_id": trace.trace_id,
        "span_id": trace.span_id,
    }


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def __init__(self, context: Context | None = None) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": rfc3339(round(record.created * 1e9)),
            "severity": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = self._context() if self._context is not None else {}
        for name in ABOUT:
            value = getattr(record, name, known.get(name))
            if value is not None:
                line[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = type(record.exc_info[1]).__name__
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
