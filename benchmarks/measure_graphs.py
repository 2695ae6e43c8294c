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


def isolated(tasks: int, rounds: int = 3) -> float:
    """Return the median seconds per no-op task of a chain, each in a clean process with only its bundle."""
    from bench_steps import chain, short

    pipeline = {TASKS: chain, PEER_TASKS: short}[tasks]
    pipeline.local(isolated=True)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        pipeline.local(isolated=True)
        times.append(time.perf_counter() - start)
    return median(times) / tasks


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
    """Return milliseconds per task: in this process, in processes of their own, and kfp.local's, which has those too.

    The processes of a run come from one that it starts first, so a short chain has the larger share of that start.
    """
    mine, few, many, other = ours(), isolated(PEER_TASKS), isolated(TASKS), peer(home)
    started = (few - many) / (1 / PEER_TASKS - 1 / TASKS)
    return {
        "local_ms_per_task": round(mine * 1e3, 2),
        "isolated_ms_per_task": round(few * 1e3, 1),
        "isolated_ms_per_task_of_20": round(many * 1e3, 1),
        "isolated_start_ms": round(started * 1e3, 1),
        "isolated_ms_per_further_task": round((many - started / TASKS) * 1e3, 1),
        "kfp_local_ms_per_task": round(other * 1e3, 1),
        "ratio_to_kfp_local": round(mine / other, 4),
        "isolated_ratio_to_kfp_local": round(few / other, 2),
    }
