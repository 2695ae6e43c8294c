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
COLD_ROUNDS = 20
PHASES = ("created", "claimed", "first_line", "returned")


def _wall(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def one(step: tl.Step[[], float]) -> dict[str, float]:
    """Run the step once; return seconds from the call to each moment."""
    begin = time.time()
    run = step.spawn()
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


def _summary(name: str, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Return p50 and p95 of the first line, and p50 of each phase, in milliseconds."""
    return {
        f"{name}_p50_ms": round(median(one["first_line"] for one in rounds) * 1e3, 1),
        f"{name}_p95_ms": round(quantiles((one["first_line"] for one in rounds), n=20)[-1] * 1e3, 1),
        f"{name}_p50_by_phase_ms": {phase: round(median(one[phase] for one in rounds) * 1e3, 1) for phase in PHASES},
        f"{name}_rounds": len(rounds),
    }


def measure(home: Path) -> dict[str, Any]:
    """Return milliseconds: cold (platform and worker from nothing), cold worker and warm worker by phase; with numpy."""
    from bench_steps import started

    return {
        "cold_platform_and_worker_ms": round(one(started)["first_line"] * 1e3, 1),
        **_summary("warm", [one(started) for _ in range(WARM_ROUNDS)]),
        **_summary("cold_worker", [one(started.with_options(name=f"cold-{index}")) for index in range(COLD_ROUNDS)]),
        "trainlet": tl.__version__,
    }
