"""Meter error against the wall clock: what is billed beside what the step itself held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUNDS = 12
DEVICES = 2


def measure(home: Path) -> dict[str, Any]:
    """Return, over short leases, the largest over- and under-billing in seconds per device."""
    from bench_steps import hold

    over, under = 0.0, 0.0
    for index in range(ROUNDS):
        seconds = 0.2 + index * 0.25
        run = hold.spawn(seconds)
        begin, end = run.result()
        report = run.usage()
        billed = report.gpu_seconds / DEVICES
        attempt = run.tasks[0].attempts[-1]
        over = max(over, billed - _span(attempt.claimed_at, attempt.finished_at))
        under = max(under, (end - begin) - billed)
    return {"leases": ROUNDS * DEVICES, "max_over_s": round(max(over, 0.0), 3), "max_under_s": round(under, 3)}


def _span(start: str, end: str | None) -> float:
    from datetime import datetime

    assert end is not None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
