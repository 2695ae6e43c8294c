"""What a step of a local run reports of itself, as lines for the person who waits: the newest now and then, the last always."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from trainlet.core import loglines
from trainlet.core.clocks import rfc3339

Say = Callable[[str], None]
EVERY_S = 1.0


class Told:
    """Tells the metrics and the progress of one attempt, each at most once in EVERY_S seconds."""

    def __init__(self, say: Say, node: str, attempt: int) -> None:
        self._say, self._node, self._attempt = say, node, attempt
        self._due_s: dict[str, float] = {}
        self._waiting: dict[str, str] = {}
        self._lock = threading.Lock()

    def emit(self, kind: str, fields: dict[str, Any]) -> None:
        """Take what a context reports; kinds that are nothing for a person are left out."""
        if kind not in _TEXTS:
            return
        now_s = time.monotonic()
        with self._lock:
            self._waiting[kind] = _TEXTS[kind](fields)
            if now_s >= self._due_s.get(kind, 0.0):
                self._due_s[kind] = now_s + EVERY_S
                self._tell(self._waiting.pop(kind))

    def end(self) -> None:
        """Tell the last ones, where newer ones came after what was told."""
        with self._lock:
            for text in self._waiting.values():
                self._tell(text)
            self._waiting.clear()

    def _tell(self, text: str) -> None:
        self._say(loglines.shown(rfc3339(time.time_ns()), self._node, text, epoch=self._attempt))


def _metrics(fields: dict[str, Any]) -> str:
    values = ", ".join(f"{name} {value:.6g}" for name, value in fields["values"].items())
    return f"step {fields['step']}: {values}"


def _progress(fields: dict[str, Any]) -> str:
    total = fields.get("total")
    done = f"{fields['done']:g}" if total is None else f"{fields['done']:g} of {total:g}"
    return f"{done} {fields.get('message') or ''}".rstrip()


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {"metrics": _metrics, "progress": _progress}
