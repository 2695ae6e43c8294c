"""Tasks created per second, with an empty database and with 10,000 tasks stored, and log lines per second end to end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from trainlet.client import connect
from trainlet.core import wire
from trainlet.core.settings import Settings

BATCH = 500
STORED = 10_000
LINES = 200_000


def create(client: Any, spec: Any, run_id: str, count: int) -> float:
    """Create tasks one request at a time on one connection; return tasks per second."""
    begin = time.perf_counter()
    for index in range(count):
        body = wire.TaskCreate(
            run_id=run_id, node="nap", function=spec.name, digest=spec.digest(), args={"seconds": 0.0}
        )
        client.put_task(f"{run_id}.nap.{index}", body)
    return count / (time.perf_counter() - begin)


def measure(home: Path) -> dict[str, Any]:
    """Return rates per second."""
    from bench_steps import chatty, nap

    chatty.remote(1)
    begin = time.perf_counter()
    run = chatty.spawn(LINES)
    seen = sum(1 for line in run.logs(follow=True) if line.stream == "stdout")
    seconds = time.perf_counter() - begin
    assert seen == LINES, f"{LINES - seen} log lines are missing"

    single = nap.with_options(name="bench-nap", max_workers=1)
    holder = single.spawn(
        3600.0
    )  # keeps the only worker busy: the others wait, and creating them is all that is measured
    next(iter(holder.logs(follow=True)))
    client = connect(Settings.from_environment())
    spec = single.spec()
    empty = create(client, spec, "bench-empty", BATCH)
    create(client, spec, "bench-fill", STORED)
    full = create(client, spec, "bench-full", BATCH)
    for name in ("bench-empty", "bench-fill", "bench-full"):
        client.cancel_run(name, "measured")
    holder.cancel()
    return {
        "tasks_created_per_s": round(empty, 1),
        "tasks_created_per_s_with_10000_stored": round(full, 1),
        "log_lines_per_s": round(LINES / seconds),
        "log_lines": LINES,
    }
