"""Cold and warm dispatch on the embedded platform, from the call to the first line of user code, by phase.

The phases are read from the task's timeline: created, dispatched, claimed (running), and the first user line, whose
wall time the step returns itself.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import trainlet as tl

WARM_ROUNDS = 40


def _wall(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def one() -> dict[str, float]:
    """Run the step once; return seconds from the call to each moment."""
    from bench_steps import started

    begin = time.time()
    run = started.spawn()
    first_line = float(run.result())
    back = time.time()
    task = run.tasks[0]
    attempt = task.attempts[-1]
    return {
        "created": _wall(task.created_at) - begin,
        "claimed": _wall(attempt.claimed_at) - begin,
        "first_line": first_line - begin,
        "returned": back - begin,
    }


def measure(home: Path) -> dict[str, Any]:
    """Return milliseconds: cold (platform and worker from nothing), cold worker, and warm p50 and p95 by phase."""
    platform_cold = one()
    warm = [one() for _ in range(WARM_ROUNDS)]
    result: dict[str, Any] = {
        "cold_platform_and_worker_ms": round(platform_cold["first_line"] * 1e3, 1),
        "warm_p50_ms": round(median(w["first_line"] for w in warm) * 1e3, 1),
        "warm_p95_ms": round(quantiles((w["first_line"] for w in warm), n=20)[-1] * 1e3, 1),
        "warm_p50_by_phase_ms": {
            phase: round(median(w[phase] for w in warm) * 1e3, 1)
            for phase in ("created", "claimed", "first_line", "returned")
        },
        "rounds": WARM_ROUNDS,
    }
    from bench_steps import started

    cold = []
    for index in range(7):
        fresh = started.with_options(name=f"cold-{index}")
        begin = time.time()
        cold.append(float(fresh.remote()) - begin)
    result["cold_worker_p50_ms"] = round(median(cold) * 1e3, 1)
    result["trainlet"] = tl.__version__
    return result
