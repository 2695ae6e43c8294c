"""Time, passed in: wall time for records, a monotonic clock for durations."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What tells the time; tests pass one that they move by hand."""

    def wall_ns(self) -> int:
        """Return UTC nanoseconds since 1970 (may step)."""
        ...

    def boot_ns(self) -> int:
        """Return nanoseconds of a clock that never steps and goes on during suspend."""
        ...


class SystemClock:
    """The machine's clocks: CLOCK_REALTIME and CLOCK_BOOTTIME (CLOCK_MONOTONIC where that is missing)."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def boot_ns(self) -> int:
        return time.monotonic_ns() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME)


class ManualClock:
    """A clock that only `advance` moves; for tests and simulations."""

    def __init__(self, wall_ns: int = 1_767_225_600_000_000_000) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = 0

    def wall_ns(self) -> int:
        return self._wall_ns

    def boot_ns(self) -> int:
        return self._boot_ns

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        step = round(seconds * 1e9)
        self._wall_ns += step
        self._boot_ns += step

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock only, as NTP or an operator would."""
        self._wall_ns += round(seconds * 1e9)


def rfc3339(wall_ns: int) -> str:
    """Format UTC nanoseconds as `2026-01-31T12:00:00.123Z`."""
    stamp = datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
