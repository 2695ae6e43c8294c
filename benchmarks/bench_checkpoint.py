"""What a checkpoint costs the training thread, beside a plain copy of the same bytes: JSON on stdout.

`python benchmarks/bench_checkpoint.py MiB...`. The saver commits to a directory with fsync; the next copy goes to the other
buffer meanwhile, as in training. Of the first size the extra memory and the slow-down of a training loop are measured
too. `bench_peers.py` does the same with other libraries.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import loads
import numpy as np

import trainlet as tl

STEPS = 90  # of the loop whose slow-down is measured; it saves three times


def some(mebibytes: int) -> dict[str, np.ndarray]:
    """Return arrays of that size."""
    return {f"layer{index}": np.random.default_rng(index).random(mebibytes << 14) for index in range(8)}


def stall(mebibytes: int) -> dict[str, float]:
    """Save six times and restore once."""
    arrays = some(mebibytes)
    target = {name: np.ones_like(array) for name, array in arrays.items()}
    copies, stalls, commits = [], [], []
    with tempfile.TemporaryDirectory() as folder, tl.checkpoint("bench", store=folder, every="1h") as ck:
        ck.register(**arrays)
        ck.restore()
        ck._stager._preparing.join()  # in training this happens during the first steps
        for step in range(1, 7):
            began = time.perf_counter()
            for name, array in arrays.items():
                target[name][...] = array
            copies.append(time.perf_counter() - began)
            for array in arrays.values():
                array[::4096] += 1
            began = time.perf_counter()
            ck._order("periodic", {}, {})
            stalls.append(time.perf_counter() - began)
            ck._step = step
            began = time.perf_counter()
            ck.wait()
            commits.append(time.perf_counter() - began)
        for array in arrays.values():
            array[:] = 0
        began = time.perf_counter()
        ck.restore()
        restored = time.perf_counter() - began
        assert all(array.any() for array in arrays.values())
    size = sum(array.nbytes for array in arrays.values())
    return {
        "memcpy_ms": round(statistics.median(copies) * 1e3, 1),
        "stall_first_ms": round(stalls[0] * 1e3, 1),
        "stall_ms": round(statistics.median(stalls) * 1e3, 1),
        "stall_over_memcpy": round(statistics.median(stalls) / statistics.median(copies), 3),
        "best_stall_over_best_memcpy": round(min(stalls) / min(copies), 3),
        "commit_s": round(statistics.median(commits), 3),
        "restore_verified_gb_per_s": round(size / restored / 1e9, 2),
    }


def around(mebibytes: int) -> dict[str, float]:
    """Measure the memory of all processes, and a training loop without and with three saves."""
    arrays = some(mebibytes)
    size = sum(array.nbytes for array in arrays.values())
    alone = [loads.training(STEPS, {})]
    with (
        loads.Peak() as peak,
        tempfile.TemporaryDirectory() as folder,
        tl.checkpoint("bench", store=folder, every="1h") as ck,
    ):
        ck.register(**arrays)
        ck.restore()

        def save() -> None:
            ck._step += 1
            for array in arrays.values():
                array[::4096] += 1
            ck._order("periodic", {}, {})

        saving = loads.training(STEPS, dict.fromkeys((15, 45, 75), save))
        ck.wait()
    alone.append(loads.training(STEPS, {}))
    base = statistics.mean(alone)
    return {
        "extra_memory_over_state": round(peak.extra_bytes / size, 2),
        "training_alone_s": round(base, 2),
        "training_with_3_saves_s": round(saving, 2),
        "slow_down_per_save_ms": round((saving - base) / 3 * 1e3, 1),
    }


def main() -> None:
    """Measure and print."""
    sizes = [int(one) for one in sys.argv[1:]] or [256]
    found = {f"{size}_mib": stall(size) for size in sizes}
    found[f"{sizes[0]}_mib"] |= around(sizes[0])
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
