"""Compiling pipelines of 3, 200 and 400 chained steps to KFP's IR, beside the same pipelines in plain kfp.

No `from __future__ import annotations` here: kfp cannot read string annotations.
"""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

SIZES = (3, 200, 400)


def ours(size: int, path: Path) -> tuple[float, int]:
    """Return the seconds that one compilation takes and the bytes it writes."""
    import bench_steps

    import trainlet as tl

    @tl.pipeline(name="chained")
    def chained() -> int:
        value = bench_steps.noop(0)
        for _ in range(size - 1):
            value = bench_steps.noop(value)
        return value

    start = time.perf_counter()
    chained.compile(path)
    return time.perf_counter() - start, path.stat().st_size


def peer(size: int, path: Path) -> tuple[float, int]:
    """Return the same for plain kfp, where a step is a lightweight component."""
    from kfp import compiler, dsl

    start = time.perf_counter()

    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def noop(value: int) -> int:
        return value

    @dsl.pipeline(name="chained")
    def chained():
        task = noop(value=0)
        for _ in range(size - 1):
            task = noop(value=task.output)

    compiler.Compiler().compile(chained, str(path))
    return time.perf_counter() - start, path.stat().st_size


def start_of_a_pod(rounds: int = 5) -> tuple[float, int]:
    """Return the median seconds until the dispatch program can begin, and the most memory it then has."""
    code = (
        "import trainlet_pipelines.dispatch, pathlib, re\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])"
    )
    times, memory = [], 0
    for _ in range(rounds):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
        memory = max(memory, int(done.stdout) * 1024)
    return median(times), memory


def measure(home: Path) -> dict[str, Any]:
    """Return milliseconds and bytes for each size, ours and kfp's in turn, and what a dispatch pod takes to start."""
    found: dict[str, Any] = {}
    ours(3, home / "warm.yaml"), peer(3, home / "warm.yaml")
    for size in SIZES:
        rounds = 5 if size == 3 else 2
        pairs = [(ours(size, home / "ours.yaml"), peer(size, home / "peer.yaml")) for _ in range(rounds)]
        mine, other = median(one[0][0] for one in pairs), median(one[1][0] for one in pairs)
        found[f"compile_{size}_ms"] = round(mine * 1e3, 1)
        found[f"kfp_compile_{size}_ms"] = round(other * 1e3, 1)
        found[f"ratio_{size}"] = round(mine / other, 2)
        found[f"yaml_{size}_bytes"], found[f"kfp_yaml_{size}_bytes"] = pairs[0][0][1], pairs[0][1][1]
    seconds, memory = start_of_a_pod()
    return {**found, "dispatch_start_ms": round(seconds * 1e3, 1), "dispatch_memory_mb": round(memory / 1e6, 1)}
