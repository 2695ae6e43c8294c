"""The child's output: read from pipes as it comes, cut into lines, sent to the API by offset.

Reading never waits for the API until a bound is reached; then the child waits, as it would for a slow terminal. Lines
that the API has acknowledged are forgotten here, and sending the same offset twice is harmless.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainlet.client import ApiUnreachable
from trainlet.client.errors import ApiFailed
from trainlet.core.wire import LogsRequest
from trainlet_functions.worker.lines import Line, Splitter

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
BATCH_LINES = 5_000
BATCH_CHARS = 2 * 1024 * 1024
BUFFER_CHARS = 64 * 1024 * 1024
LINE_COST = 64  # what a line costs beside its text, so that a flood of empty lines is bounded too
SEND_EVERY_S = 0.1


@dataclass(slots=True)
class _Rank:
    """Lines of one rank that are not acknowledged: `lines[0]` has the number `offset`."""

    offset: int = 0
    lines: list[Line] = field(default_factory=list)
    chars: int = 0


class Output:
    """Collects lines of all ranks and sends them."""

    def __init__(self, send: Callable[[LogsRequest], int], mask: Callable[[str], str], log: Log | None = None) -> None:
        self._log = log or logging.getLogger(__name__)
        self._send = send
        self._mask = mask
        self._ranks: dict[int, _Rank] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._broken = False
        self._sender = threading.Thread(target=self._send_forever, name="log-sender", daemon=True)
        self._sender.start()

    def say(self, text: str, rank: int = 0) -> None:
        """Add a line of the platform itself."""
        self.add(rank, [(time.time_ns() // 1_000_000, "system", text)])

    def add(self, rank: int, lines: list[Line]) -> None:
        """Add lines; waits while too much is not sent yet."""
        lines = [(at, stream, self._mask(text)) for at, stream, text in lines]
        with self._changed:
            held = self._ranks.setdefault(rank, _Rank())
            self._changed.wait_for(lambda: held.chars < BUFFER_CHARS or self._broken)
            held.lines += lines
            held.chars += _cost(lines)
            self._changed.notify_all()

    def close(self, go_on: Callable[[], bool]) -> bool:
        """Send what is left, for as long as `go_on()` holds; returns False when lines are left that might be taken yet."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        while self._sender.is_alive() and go_on():
            self._sender.join(0.2)
        gave_up = self._sender.is_alive()
        self.abandon()
        return not gave_up

    def abandon(self) -> None:
        """Send nothing more: the attempt is fenced, or nobody is there to take it."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()

    def _send_forever(self) -> None:
        pause_s = SEND_EVERY_S
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._broken or any(held.lines for held in self._ranks.values())
                )
                if self._broken:
                    return
                batches = [(rank, held.offset, _batch(held)) for rank, held in self._ranks.items() if held.lines]
                closed = self._closed
            if not batches:
                return
            for rank, offset, lines in batches:
                try:
                    following = self._send(LogsRequest(rank=rank, offset=offset, lines=lines))
                except (ApiUnreachable, ApiFailed):
                    pause_s = min(pause_s * 2, 2.0)
                    continue
                except Exception as error:  # noqa: BLE001 - fenced or refused: nobody will ever take these lines
                    self._log.warning("log lines of rank %d are not taken any more: %s", rank, error)
                    self.abandon()
                    return
                pause_s = SEND_EVERY_S
                self._acknowledge(rank, following)
            if not closed or pause_s > SEND_EVERY_S:
                time.sleep(pause_s)

    def _acknowledge(self, rank: int, following: int) -> None:
        with self._changed:
            held = self._ranks[rank]
            done = max(0, min(following - held.offset, len(held.lines)))
            held.chars -= _cost(held.lines[:done])
            del held.lines[:done]
            held.offset += done
            self._changed.notify_all()


def _cost(lines: list[Line]) -> int:
    return sum(len(text) + LINE_COST for _, _, text in lines)


def _batch(held: _Rank) -> list[Line]:
    chars, count = 0, 0
    for _, _, text in held.lines[:BATCH_LINES]:
        chars += len(text) + LINE_COST
        count += 1
        if chars > BATCH_CHARS:
            break
    return held.lines[:count]


def pump(rank: int, stdout: int, stderr: int, output: Output) -> None:
    """Read one rank's pipes until both end. Closes them."""
    with selectors.DefaultSelector() as selector:
        splitters = {stdout: Splitter("stdout"), stderr: Splitter("stderr")}
        for descriptor in splitters:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            waits = [wait_s for one in splitters.values() if (wait_s := one.wait_s()) is not None]
            for key, _ in selector.select(min(waits, default=None)):
                try:
                    data = os.read(key.fd, 1 << 18)
                except OSError:
                    data = b""
                lines = splitters[key.fd].feed(data)
                if lines:
                    output.add(rank, lines)
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
            for splitter in splitters.values():
                if late := splitter.overdue():
                    output.add(rank, late)
