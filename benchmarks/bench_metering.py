"""What the ledger can do: durable ingest, rating, totals and exports. JSON on stdout and in benchmarks/metering.json.

`python benchmarks/bench_metering.py [SCALE]`. SQLite with synchronous=FULL, as the embedded platform has it; one process.
Rates are per second of wall time where a disk is waited for, and per CPU-second elsewhere.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import rating, totals
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.metering.segments import Segment
from trainlet_functions.state import ledger
from trainlet_functions.state.database import Database

BEGIN_S = 1_782_864_000  # 2026-07-01
BARS = {
    "ingest_batches_of_100_per_s": 20_000,
    "ingest_bulk_per_s": 70_000,
    "rated_segments_per_cpu_s": 2_000_000,
    "totals_50m_gpu_seconds_cpu_s": 2.0,
    "event_to_billable_p99_ms": 1000.0,
}


def prices() -> PriceList:
    """Return two versions, so that some segments are cut."""
    start = datetime.fromtimestamp(BEGIN_S - 86_400, UTC)
    later = datetime.fromtimestamp(BEGIN_S + 40_000, UTC)
    made = {"currency": "USD", "per_gpu_hour": {"H100-80GB": Decimal("3.96"), "A100-80GB": Decimal("1.98")}}
    return PriceList(
        versions=(
            PriceVersion(version="v1", effective_from=start, **made),  # type: ignore[arg-type]
            PriceVersion(version="v2", effective_from=later, **made),  # type: ignore[arg-type]
        )
    )


def event(lease: int, seq: int, held_s: float, kind: str = "heartbeat") -> LeaseEvent:
    """Return a reading of a lease; every lease has a device of its own."""
    sku = ("H100-80GB", "A100-80GB")[lease % 2]
    return LeaseEvent(
        id=f"run-{lease % 100}.train.{lease}:{seq}",
        kind=kind,  # type: ignore[arg-type]
        lease=f"run-{lease % 100}.train.{lease}",
        seq=seq,
        task=f"run-{lease % 100}.train",
        epoch=1,
        run_id=f"run-{lease % 100}",
        function="train",
        device=Device(uuid=f"GPU-{lease}", sku=sku),
        anchor_ns=BEGIN_S * 10**9 + lease * 1_000_003,
        elapsed_ns=round(held_s * 1e9),
    )


def per_s(count: int, work: Callable[[], Any]) -> tuple[float, float]:
    """Return how many in a second of wall time, and in a CPU-second."""
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    return round(count / (time.perf_counter() - began)), round(count / (time.process_time() - cpu_began))


def ingest(database: Database, count: int, batch: int, leases: int, first: int) -> dict[str, tuple[float, float]]:
    """Take in heartbeats in batches, each one durable transaction; then all of them again."""
    events = [
        event(first + number % leases, number // leases, 10.0 * (number // leases + 1)) for number in range(count)
    ]

    def take() -> None:
        for start in range(0, count, batch):
            with database.write() as tx:
                metering.ingest(tx, "p", events[start : start + batch])

    return {"new": per_s(count, take), "again": per_s(count, take)}


def rated(count: int) -> float:
    """Rate segments of ten minutes, which sometimes cross an hour or a change of price."""
    listed, terms = prices(), rating.Terms("H100-80GB", "p")
    segments = [Segment("run", BEGIN_S + 37 * n % 80_000, BEGIN_S + 37 * n % 80_000 + 600) for n in range(count)]
    began = time.process_time()
    rating.rate(segments, terms, listed)
    return round(count / (time.process_time() - began))


def billable(database: Database, rounds: int) -> float:
    """Return the 99th percentile from an event to its cost in the sums that budgets look at, in ms."""
    took: list[float] = []
    for number in range(rounds):
        began = time.perf_counter()
        with database.write() as tx:
            ledger.take(tx, "q", [event(900_000 + number % 10, number, float(number + 1))])
        took.append((time.perf_counter() - began) * 1e3)
    return round(sorted(took)[int(rounds * 0.99)], 1)


def summed(database: Database, leases: int, seconds: int) -> dict[str, float]:
    """Sum GPU-seconds by project, SKU and hour."""
    for start in range(0, leases, 1000):
        with database.write() as tx:
            metering.ingest(
                tx, f"t{start // 1000 % 3}", [event(10**6 + n, 1, seconds, "close") for n in range(start, start + 1000)]
            )
    asked = totals.Question(None, None, BEGIN_S, BEGIN_S + 10 * 86_400, "h", ("project", "sku"))
    began = time.process_time()
    with database.read() as tx:
        page = totals.totals(tx, asked)
    cpu_s = time.process_time() - began
    total = sum(one.parts for one in page.items) / 5040
    return {"gpu_seconds": round(total), "cpu_s": round(cpu_s, 2), "cpu_s_of_50m": round(cpu_s * 50e6 / total, 2)}


def main(scale: float) -> dict[str, Any]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock((BEGIN_S + 20 * 86_400) * 10**9)
        database = Database(f"sqlite:///{Path(folder) / 'state.db'}", clock, prices=prices())
        database.migrate()
        small = ingest(database, round(20_000 * scale), 100, 500, 0)
        bulk = ingest(database, round(40_000 * scale), 10_000, 1000, 1000)
        p99 = billable(database, round(300 * scale))
        sums = summed(database, 1000, round(50_000 * scale))
        database.close()
    figures = {
        "ingest_batches_of_100_per_s": small["new"][0],
        "ingest_batches_of_100_per_cpu_s": small["new"][1],
        "ingest_batches_of_100_again_per_s": small["again"][0],
        "ingest_bulk_per_s": bulk["new"][0],
        "ingest_bulk_per_cpu_s": bulk["new"][1],
        "ingest_bulk_again_per_s": bulk["again"][0],
        "rated_segments_per_cpu_s": rated(round(100_000 * scale)),
        "event_to_billable_p99_ms": p99,
        "totals_gpu_seconds": sums["gpu_seconds"],
        "totals_cpu_s": sums["cpu_s"],
        "totals_50m_gpu_seconds_cpu_s": sums["cpu_s_of_50m"],
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return {"scale": scale, "figures": figures, "bars": BARS}


if __name__ == "__main__":
    found = main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    text = json.dumps(found, indent=1)
    (Path(__file__).parent / "metering.json").write_text(text + "\n")
    print(text)
