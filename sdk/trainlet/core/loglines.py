"""How a line of a step's log is shown to a person: the same for every step, wherever it ran."""

from __future__ import annotations


def shown(stamp: str | None, node: str, text: str, *, epoch: int = 1, rank: int = 0) -> str:
    """Return a line with its time (UTC), its node, and the attempt and rank where there are several."""
    again = f" #{epoch}" if epoch > 1 else ""
    part = f" rank {rank}" if rank else ""
    return f"{time_of_day(stamp)} [{node}{again}{part}] {text}"


def time_of_day(stamp: str | None) -> str:
    """Return the time of day of an RFC 3339 stamp."""
    return "" if not stamp else stamp[11:19]
