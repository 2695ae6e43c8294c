"""Metering of one attempt: one lease per device, timed by a clock that never steps."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Literal

from trainlet.core.clocks import Clock
from trainlet.core.wire import ClaimReply, LeaseEvent
from trainlet_functions import journals
from trainlet_functions.worker import spool

_LOG = logging.getLogger(__name__)


class Meter:
    """Counts from the claim on; every reading is on disk before it is sent."""

    def __init__(self, claim: ClaimReply, folder: Path, clock: Clock) -> None:
        self._claim = claim
        self._folder = folder
        self._clock = clock
        self._start_ns = clock.boot_ns()
        self._seq = 0
        self._phases: list[tuple[str, int]] = [("setup", 0)]
        self._saved_ns = 0
        self._closed: list[LeaseEvent] | None = None
        self._complained = False
        self._lock = threading.Lock()

    def running(self) -> None:
        """Mark that user code began."""
        with self._lock:
            if self._phases[-1][0] == "setup":
                self._phases.append(("run", self._clock.boot_ns() - self._start_ns))

    def saved(self) -> None:
        """Mark that a checkpoint was committed: were this worker lost, what comes from now on would be lost with it."""
        with self._lock:
            self._saved_ns = self._clock.boot_ns() - self._start_ns

    def read(self) -> list[LeaseEvent]:
        """Return one event per device with the time held so far."""
        return self._events("heartbeat")

    def close(self) -> list[LeaseEvent]:
        """Return the closing events; the same ones when asked again."""
        if self._closed is None:
            self._closed = self._events("close")
        return self._closed

    def forget(self) -> None:
        """Drop the spool after the end was acknowledged."""
        spool.clear(self._folder)

    def _events(self, kind: Literal["open", "heartbeat", "close"]) -> list[LeaseEvent]:
        if not self._claim.devices:
            return []
        with self._lock:
            if self._closed is not None:
                return self._closed
            kind = "open" if kind == "heartbeat" and self._seq == 0 else kind
            task = self._claim.task
            elapsed_ns = self._clock.boot_ns() - self._start_ns
            # A database that is restored gives an epoch out again: the claim's own time tells the two leases apart.
            lease = f"{task.key}.{self._claim.epoch}.{self._claim.wall_anchor_ns:x}"
            events = [
                LeaseEvent(
                    id=f"{lease}.{index}:{self._seq}",
                    kind=kind,
                    lease=f"{lease}.{index}",
                    seq=self._seq,
                    task=task.key,
                    epoch=self._claim.epoch,
                    run_id=task.run_id,
                    function=task.function,
                    device=device,
                    tags=self._claim.tags,
                    anchor_ns=self._claim.wall_anchor_ns,
                    elapsed_ns=elapsed_ns,
                    saved_ns=self._saved_ns,
                    phases=tuple(self._phases),
                )
                for index, device in enumerate(self._claim.devices)
            ]
            self._seq += 1
            self._save(events)
            return events

    def _save(self, events: list[LeaseEvent]) -> None:
        try:
            spool.save(self._folder, events)
        except OSError as error:  # a full disk must not end the training: the API hears the same numbers
            if not self._complained:
                log = journals.of_attempt(_LOG, self._claim)
                log.warning("the usage cannot be spooled (%s); it is only sent", error)
            self._complained = True
