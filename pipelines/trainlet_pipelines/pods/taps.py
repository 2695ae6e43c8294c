"""The worker's lines on the way to the pod's log: in order, none twice, and never so many that the node's log rotates.

What is too much is held back and counted; every line stays readable at the training API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainlet.core import wire
from trainlet.core.clocks import Clock

BURST = 5_000
PER_SECOND = 500.0


class Tap:
    """Says lines at most `per_second`, with `burst` at once."""

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Clock,
        where: str,
        *,
        burst: int = BURST,
        per_second: float = PER_SECOND,
    ) -> None:
        self._say, self._clock, self._where = say, clock, where
        self._burst, self._per_second = burst, per_second
        self._allowed = float(burst)
        self._at_ns = clock.boot_ns()
        self._held = 0
        self._epoch = 0

    def write(self, lines: Iterable[wire.LogLine]) -> None:
        """Say the lines, or count those that are too many."""
        now = self._clock.boot_ns()
        self._allowed = min(self._burst, self._allowed + (now - self._at_ns) / 1e9 * self._per_second)
        self._at_ns = now
        for line in lines:
            if self._allowed < 1 and line.stream != "system":
                self._held += 1
                continue
            self.close()
            self._allowed -= 1
            if line.epoch != self._epoch and self._epoch:
                self._say(f"trainlet: attempt {line.epoch}")
            self._epoch = line.epoch
            self._say(f"[rank {line.rank}] {line.text}" if line.rank else line.text)

    def close(self) -> None:
        """Say how many lines were held back since the last one that was said."""
        if self._held:
            self._say(f"trainlet: {self._held} lines were held back here; all of them: {self._where}")
            self._held = 0
