"""How soon a stop has committed what a trainer had staged, through a real worker: JSON on stdout.

`python benchmarks/bench_sigterm.py [MiB]`. A platform of its own runs a step that is stuck in a call which holds the
interpreter's lock; its worker gets SIGTERM. What the disk takes meanwhile is measured beside it, with the same number of
connections and fsync, so that the rest is what the protocol costs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import run

import trainlet as tl
from trainlet.client.stores import DirectoryStore
from trainlet_functions.checkpoints import list_checkpoints, probes

PACK_BYTES = 64 << 20


@tl.step(checkpoint=tl.Checkpoint(every="1h"), grace=12, memory="8Gi")
def stuck(mebibytes: int, path: str, *, ctx: tl.Context = tl.INJECTED) -> int:
    """Train until something is staged, and then never return from a call."""
    arrays = {f"layer{index}": np.random.default_rng(index).random(mebibytes << 14) for index in range(8)}
    ctx.checkpoint.register(**arrays)
    start = ctx.checkpoint.restore()
    if start is not None:
        return start.step
    for step in range(1, 9):
        for one in arrays.values():
            one[::4096] += 1
        ctx.checkpoint.step(step)
        time.sleep(0.5)
    Path(path).write_text("stuck")
    re.match(r"(a+)+$", "a" * 40 + "b")
    return 0


def main() -> None:
    """Measure and print."""
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    size = mebibytes << 20
    with tempfile.TemporaryDirectory(prefix="trainlet-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        os.environ |= {"TRAINLET_HOME": str(home), "OMP_NUM_THREADS": "1"}
        mark = Path(folder) / "mark"
        task = stuck.spawn(mebibytes, str(mark))
        while not mark.exists():
            time.sleep(0.05)
        time.sleep(1.0)  # the worker is quiet
        attempt = task.tasks[0].attempts[-1]
        worker = int((home / "workers" / attempt.worker / "pid").read_text())
        store = DirectoryStore(home / "store")
        prefix = f"runs/{task.tasks[0].key}"
        before = len(list_checkpoints(store, prefix))
        began = time.perf_counter()
        os.kill(worker, signal.SIGTERM)
        while len(list_checkpoints(store, prefix)) == before:
            time.sleep(0.005)
        committed = time.perf_counter() - began
        size_each, disk = min(size, PACK_BYTES), DirectoryStore(Path(folder) / "speed")
        rates = [probes.speed(disk, objects=max(1, size // PACK_BYTES), object_bytes=size_each) for _ in range(3)]
        resumed = task.result(300)
        run.stop_platform(home)
    rate = max(one.put_bytes_per_s for one in rates)
    print(
        json.dumps(
            {
                "size_mib": mebibytes,
                "sigterm_to_committed_s": round(committed, 3),
                "disk_mb_per_s": round(rate / 1e6, 1),
                "bytes_over_bandwidth_s": round(size / rate, 3),
                "above_bytes_over_bandwidth_s": round(committed - size / rate, 3),
                "resumed_at_step_of_8": resumed,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
