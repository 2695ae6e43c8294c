"""The place a local worker runs in: a process whose parent is the platform.

`WorkerHost` is how a worker asks its surroundings to keep it and hears that it must go. In a Knative pod that is the
hold and the drain watch; here the pool keeps busy workers anyway, and the end comes as SIGTERM.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


class LocalProcessHost:
    """A process on this machine; SIGTERM and SIGINT are its notice to go."""

    def busy(self) -> None:
        """Nothing to do: the pool never stops a busy worker but by SIGTERM."""

    def idle(self) -> None:
        """Nothing to do."""

    def watch(self, drain: Callable[[str], None]) -> None:
        """Hear SIGTERM and SIGINT; must be called from the main thread."""

        def hear(number: int, _frame: FrameType | None) -> None:
            drain(f"got {signal.Signals(number).name}")

        signal.signal(signal.SIGTERM, hear)
        signal.signal(signal.SIGINT, hear)

    def close(self) -> None:
        """Ignore what comes after."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
