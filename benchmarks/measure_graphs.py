"""Overhead of the local graph runner per task, beside `kfp.local` with its subprocess runner.

No `from __future__ import annotations` here: kfp cannot read string annotations.
"""

import logging
import time
from pathlib import Path
from statistics import median
from typing import Any

TASKS = 20
PEER_TASKS = 4


def ours(rounds: int = 5) -> float:
    """Return the median seconds per no-op task of a chain of 20."""
    from bench_steps import chain

    chain.local()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        chain.local()
        times.append(time.perf_counter() - start)
    return median(times) / TASKS


def isolated(rounds: int = 3) -> float:
    """Return the median seconds per no-op task of a chain of 4, each in a clean process with only its bundle."""
    from bench_steps import short

    short.local(isolated=True)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        short.local(isolated=True)
        times.append(time.perf_counter() - start)
    return median(times) / PEER_TASKS


def peer(home: Path) -> float:
    """Return the median seconds per no-op task of a chain of 4 under kfp.local (no virtual environment, no pip)."""
    from kfp import dsl, local

    logging.disable(logging.CRITICAL)
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(home / "kfp"), raise_on_error=True)

    @dsl.component(install_kfp_package=False)
    def noop(value: int) -> int:
        return value

    @dsl.pipeline
    def chain() -> int:
        task = noop(value=0)
        for _ in range(PEER_TASKS - 1):
            task = noop(value=task.output)
        return task.output

    times = []
    for _ in range(3):
        start = time.perf_counter()
        chain()
        times.append(time.perf_counter() - start)
    logging.disable(logging.NOTSET)
    return median(times) / PEER_TASKS


def measure(home: Path) -> dict[str, Any]:
    """Return milliseconds per task: in this process, in processes of their own, and kfp.local's, which has those too."""
    mine, alone, other = ours(), isolated(), peer(home)
    return {
        "local_ms_per_task": round(mine * 1e3, 2),
        "isolated_ms_per_task": round(alone * 1e3, 1),
        "kfp_local_ms_per_task": round(other * 1e3, 1),
        "ratio_to_kfp_local": round(mine / other, 4),
        "isolated_ratio_to_kfp_local": round(alone / other, 2),
    }
