"""What the children of an attempt say about themselves: their results, and the news for the next heartbeat.

A report is a line of JSON on a pipe. User code can write into that pipe too, so nothing in it is trusted to be well
formed, and nothing in it can do more than the task itself may.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainlet.core.wire import CheckpointNote
from trainlet_functions.worker.nurseries import Child

LAST = ("result", "error", "stopped")
MAX_LINE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class News:
    """What the API has not heard yet."""

    progress: dict[str, Any] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoints: tuple[CheckpointNote, ...] = ()


class Reports:
    """Collects what all ranks report; only rank 0 has news of the task as a whole."""

    def __init__(
        self,
        on_started: Callable[[], None],
        on_news: Callable[[], None],
        warn: Callable[[str], None],
        mask: Callable[[str], str],
    ) -> None:
        self._on_started = on_started
        self._on_news = on_news
        self._warn = warn
        self._mask = mask
        self._lock = threading.Lock()
        self._last: dict[int, tuple[float, dict[str, Any]]] = {}
        self._news = News()
        self._saved: dict[int, bool] = {}
        self.on_checkpointing: Callable[[int], None] = lambda rank: None
        self.started = False
        self.resumed_from: int | None = None

    def hear(self, child: Child) -> None:
        """Read one child's pipe to its end; for a thread of its own. Closes it."""
        buffered = bytearray()
        while True:
            try:
                data = os.read(child.report, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            buffered += data
            if b"\n" in data:
                *lines, rest = bytes(buffered).split(b"\n")
                buffered = bytearray(rest)
                for line in lines:
                    with contextlib.suppress(Exception):  # not what a child of ours writes
                        self._take(child.rank, json.loads(line))
            if len(buffered) > MAX_LINE:
                buffered.clear()
        os.close(child.report)

    def last(self, rank: int) -> dict[str, Any] | None:
        """Return a rank's result, error or stop, when it has reported one."""
        with self._lock:
            return self._last[rank][1] if rank in self._last else None

    def seconds_since_last(self, rank: int) -> float:
        """Return how long ago a rank reported its result, error or stop; 0 when it has not."""
        with self._lock:
            return time.monotonic() - self._last[rank][0] if rank in self._last else 0.0

    def saved(self, rank: int) -> bool:
        """Say whether a rank's saver ended with everything committed that was staged."""
        with self._lock:
            return self._saved.get(rank, False)

    def take_news(self) -> News:
        """Return the news and forget them; `give_back` them when they could not be told."""
        with self._lock:
            news, self._news = self._news, News()
            return news

    def give_back(self, news: News) -> None:
        """Keep news that could not be delivered for the next heartbeat."""
        with self._lock:
            new = self._news
            self._news = News(
                new.progress or news.progress,
                {**news.metrics, **new.metrics},
                (*news.checkpoints, *new.checkpoints),
            )

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind in LAST:
            with self._lock:
                self._last.setdefault(rank, (time.monotonic(), message))
        elif kind == "warning":
            self._warn(str(message["message"]))
        elif kind == "checkpointing":
            self.on_checkpointing(rank)
        elif kind == "saver_done":
            with self._lock:
                self._saved[rank] = bool(message["whole"])
        elif rank == 0:
            self._take_news(kind, message)

    def _take_news(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "started":
            self.started = True
            self._on_started()
            self._on_news()
        elif kind == "restored":
            self.resumed_from = int(message["step"])
        elif kind == "metrics":
            self._add(News(metrics={str(name): float(value) for name, value in message["values"].items()}))
        elif kind == "progress":
            shown = self._mask(str(message["message"]))
            self._add(News(progress={"done": message["done"], "total": message["total"], "message": shown}))
        elif kind == "checkpoint":
            fields = {name: message[name] for name in CheckpointNote.model_fields if name in message}
            self._add(News(checkpoints=(CheckpointNote.model_validate(fields),)))
            self._on_news()

    def _add(self, more: News) -> None:
        with self._lock:
            old = self._news
            self._news = News(
                more.progress or old.progress, {**old.metrics, **more.metrics}, (*old.checkpoints, *more.checkpoints)
            )
