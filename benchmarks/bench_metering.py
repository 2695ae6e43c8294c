"""What the ledger can do: durable ingest, rating, totals, exports and the meter's error. JSON on stdout and in metering.json.

`python benchmarks/bench_metering.py [SCALE]`. SQLite with synchronous=FULL, as the embedded platform has it. Each part runs in
a process of its own, so that its memory and what Python's collector has to look at are its own. Rates are per second of
wall time where a disk is waited for, and per CPU-second elsewhere. The peer of ingest is the sqlite3 module alone: the
same look-ups, rows, updates and indexes in the same batches, with nothing parsed, checked, folded or made on the way.
"""

from __future__ import annotations

import ctypes
import gc
import heapq
import json
import multiprocessing
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from trainlet.client.stores.directory import DirectoryStore
from trainlet.core.bills import EVERY_PROJECT, Row, Snapshot
from trainlet.core.clocks import ManualClock, SystemClock
from trainlet.core.wire import ClaimReply, Device, LeaseEvent, TaskView
from trainlet_functions import metering
from trainlet_functions.billing import rating, rows, totals
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.exports import verifying, writing
from trainlet_functions.metering.segments import Segment
from trainlet_functions.metering.tables import leases as lease_table
from trainlet_functions.state import ledger
from trainlet_functions.state.database import Database
from trainlet_functions.worker.meter import Meter
from trainlet_functions.worker.samples import Sampler

DRIVER = Path(__file__).parents[1] / "tests" / "functions" / "devices" / "libnvidia_ml.c"
BEGIN_S = 1_782_864_000  # 2026-07-01
BARS: dict[str, tuple[str, float]] = {
    "ingest_batches_of_100_per_s": (">=", 20_000),
    "ingest_bulk_per_s": (">=", 70_000),
    "rated_segments_per_cpu_s": (">=", 2_000_000),
    "totals_50m_gpu_seconds_cpu_s": ("<=", 2.0),
    "totals_peak_rss_mb": ("<=", 110),
    "export_1m_rows_cpu_s": ("<=", 5.0),
    "event_to_billable_p99_ms": ("<=", 1000.0),
    "meter_max_over_s": ("<=", 0.0),
    "meter_max_under_s": ("<=", 1.0),
    "meter_doubled_gpu_seconds": ("<=", 0),
    "sampling_percent_of_a_core": ("<=", 0.1),
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


def fresh(folder: str, **options: Any) -> Database:
    """Return a new database on disk, long after the usage."""
    clock = ManualClock((BEGIN_S + 20 * 86_400) * 10**9)
    database = Database(f"sqlite:///{Path(folder) / 'state.db'}", clock, prices=prices(), **options)
    database.migrate()
    return database


def heartbeats(count: int, leases: int, first: int) -> list[LeaseEvent]:
    """Return the readings of leases, each lease in turn."""
    return [event(first + n % leases, n // leases, 10.0 * (n // leases + 1)) for n in range(count)]


def ingest(count: int, batch: int, leases: int) -> dict[str, float]:
    """Take in heartbeats in batches, each one durable transaction; then all again; then beside budgets; then the peer."""
    events = heartbeats(count, leases, 0)
    gc.freeze()  # they are the senders'
    with tempfile.TemporaryDirectory() as folder:
        database = fresh(folder)

        def take(into: Callable[..., Any], project: str) -> None:
            for start in range(0, count, batch):
                database.clock.advance(0.001)  # type: ignore[attr-defined]
                with database.write() as tx:
                    into(tx, project, events[start : start + batch])

        new = per_s(count, lambda: take(metering.ingest, "p"))
        again = per_s(count, lambda: take(metering.ingest, "p"))
        counted = per_s(count, lambda: take(ledger.take, "q"))
        database.close()
    bare = peer(events, batch, leases)
    return {
        "per_s": new[0],
        "per_cpu_s": new[1],
        "again_per_s": again[0],
        "with_budgets_per_s": counted[0],
        "with_budgets_per_cpu_s": counted[1],
        "bare_sqlite3_per_s": bare[0],
        "bare_sqlite3_per_cpu_s": bare[1],
        "of_bare_sqlite3": round(new[1] / bare[1], 2),
    }


def peer(events: list[LeaseEvent], batch: int, leases: int) -> tuple[float, float]:
    """Put the same rows into the same tables by the sqlite3 module alone."""
    with tempfile.TemporaryDirectory() as folder:
        database = fresh(folder)
        with database.write() as tx:
            metering.ingest(tx, "p", [event(number, 10**6, 1.0) for number in range(leases)])
        database.close()
        logged = [("p", one.id, one.model_dump_json(exclude_defaults=True), 1) for one in events]
        beats = [(one.elapsed_ns, place, "p", one.lease) for place, one in enumerate(events)]
        conn = sqlite3.connect(Path(folder) / "state.db", isolation_level=None)
        conn.execute("PRAGMA synchronous=FULL")

        def put() -> None:
            for start in range(0, len(events), batch):
                part = logged[start : start + batch]
                conn.execute("BEGIN IMMEDIATE")
                known = "SELECT id, body FROM lease_events WHERE project=? AND id IN (SELECT value FROM json_each(?))"
                conn.execute(known, ("p", json.dumps([row[1] for row in part]))).fetchall()
                conn.executemany("INSERT INTO lease_events(project, id, body, received_ns) VALUES (?, ?, ?, ?)", part)
                last = {beat[3]: beat for beat in beats[start : start + batch]}
                update = "UPDATE leases SET heartbeat_ns=?, touched_ns=? WHERE project=? AND lease=?"
                conn.executemany(update, list(last.values()))
                conn.execute("COMMIT")

        found = per_s(len(events), put)
        conn.close()
        return found


def segments(count: int) -> list[Segment]:
    """Return what a lease of many phases of ten minutes leaves, of which every sixth crosses an hour."""
    return [Segment("run", BEGIN_S + 137 + 600 * number, BEGIN_S + 737 + 600 * number) for number in range(count)]


def rated(count: int) -> dict[str, float]:
    """Rate leases of 144 segments of ten minutes, of which every sixth crosses an hour and one a change of price."""
    listed, terms, lease = prices(), rating.Terms("H100-80GB", "p"), segments(144)
    rounds = max(1, count // len(lease))

    def rate() -> None:
        for _ in range(rounds):
            rating.rate(lease, terms, listed)

    began = time.process_time()
    number = sum(len(together) for together in charged(count))
    rows_per_cpu_s = round(number / (time.process_time() - began))
    return {"segments_per_cpu_s": per_s(rounds * len(lease), rate)[1], "rows_per_cpu_s": rows_per_cpu_s}


def charged(count: int) -> Iterator[list[Row]]:
    """Yield rows of the ledger, lease by lease, of ten segments each."""
    listed, until_s = prices(), BEGIN_S + 31 * 86_400
    for number in range(count // 10):
        begin = 37 * number % 2_000_000
        used = [Segment(one.phase, one.start_s + begin, one.end_s + begin) for one in segments(10)]
        terms = rating.Terms(("H100-80GB", "A100-80GB")[number % 2], f"p{number % 3}")
        run = f"run-{number % 997}"
        names = (f"{run}.train.{number}", run, f"{run}.train", 1, "train", f"GPU-{number}")
        yield rows.rated(rows.Usage(terms, *names, False, used, {"team": f"t{number % 7}"}), listed, 0, until_s)


def exported(count: int) -> dict[str, float]:
    """Write rows as FOCUS in Parquet and CSV, and verify the export against them."""
    given = [row for together in charged(count) for row in together]
    gc.freeze()  # whoever exports a period reads its rows as a stream; here the collector would walk over all of them
    snapshot = Snapshot(
        period="2026-07", state="open", scope=EVERY_PROJECT, currency="USD", as_of="2026-07-31T00:00:00Z"
    )
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(Path(folder))
        began = time.process_time()
        made = writing.write(store, snapshot, iter(given), created_at="2026-08-01T00:00:00Z", generator="bench")
        wrote = time.process_time() - began
        began = time.process_time()
        report = verifying.verify(store, made.folder, (snapshot, iter(given)))
        assert report.ok, report
        verified = time.process_time() - began
    million = 1e6 / len(given)
    return {
        "rows": len(given),
        "1m_rows_cpu_s": round(wrote * million, 2),
        "verify_1m_rows_cpu_s": round(verified * million, 2),
    }


def billable(rounds: int) -> dict[str, float]:
    """Return the 99th percentile from an event to its cost in the sums that budgets look at, in ms."""
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        database = fresh(folder)
        for number in range(rounds):
            database.clock.advance(0.001)  # type: ignore[attr-defined]
            began = time.perf_counter()
            with database.write() as tx:
                ledger.take(tx, "q", [event(number % 10, number, float(number + 1))])
            took.append((time.perf_counter() - began) * 1e3)
        database.close()
    return {"p99_ms": round(sorted(took)[int(rounds * 0.99)], 2)}


def summed(devices: int, leases: int, seconds: int) -> dict[str, float]:
    """Sum the GPU-seconds of leases that follow each other on devices, by project, SKU and hour."""
    with tempfile.TemporaryDirectory() as folder:
        database = fresh(folder)
        for place in range(leases):
            ended = []
            for number in range(devices):
                one = event(number * leases + place, 1, seconds, "close")
                anchor_ns = (BEGIN_S + place * (seconds + 1)) * 10**9 + number
                ended.append(one.model_copy(update={"anchor_ns": anchor_ns, "device": event(number, 1, 1.0).device}))
            for project in range(3):
                with database.write() as tx:
                    metering.ingest(tx, f"t{project}", ended[project::3])
        asked = totals.Question(None, None, BEGIN_S, BEGIN_S + 10 * 86_400, "h", ("project", "sku"))
        began = time.process_time()
        with database.read() as tx:
            page = totals.totals(tx, asked)
        cpu_s = time.process_time() - began
        database.close()
    total = sum(one.parts for one in page.items) / 5040
    return {
        "gpu_seconds": round(total),
        "leases": devices * leases,
        "50m_gpu_seconds_cpu_s": round(cpu_s * 50e6 / total, 2),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def metered(count: int) -> dict[str, float]:
    """Hold leases of up to three seconds by this machine's clocks, send every reading up to three times in any order, lose
    some, and compare what is billed with what this process saw pass between claim and end."""
    chance, clock = random.Random(7), SystemClock()
    held: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'state.db'}", clock, prices=prices())
        database.migrate()
        later: list[LeaseEvent] = []

        def send(events: list[LeaseEvent]) -> None:
            later.extend(one for one in events for _ in range(chance.randint(1, 3)))
            if len(later) > 200:
                chance.shuffle(later)
                with database.write() as tx:
                    ledger.take(tx, "p", later[:150])
                later[:150] = later[:20]  # an answer that was lost: some are sent again

        plan = [(chance.uniform(0, 4), number, "claim") for number in range(count)]
        heapq.heapify(plan)
        meters: dict[int, tuple[Meter, int, int]] = {}
        began = time.monotonic()
        while plan:
            at_s, number, what = heapq.heappop(plan)
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            if what == "claim":
                (Path(folder) / str(number)).mkdir()
                before = time.monotonic_ns()
                meter = Meter(_claim(number, clock.wall_ns()), Path(folder) / str(number), clock)
                meters[number] = meter, before, time.monotonic_ns()
                heapq.heappush(plan, (at_s + chance.uniform(0, 3), number, "end"))
                for beat in range(1, 3):
                    heapq.heappush(plan, (at_s + beat, number, "beat"))
            elif what == "beat" and number in meters and chance.random() < 0.9:
                send(meters[number][0].read())
            elif what == "end":
                meter, before, after = meters.pop(number)
                first = time.monotonic_ns()
                closing = meter.close()
                held[closing[0].lease] = (first - after, time.monotonic_ns() - before)
                send(closing)
        with database.write() as tx:
            ledger.take(tx, "p", later)
        with database.read() as tx:
            stored = {row.lease: metering.segments(row) for row in tx.all(lease_table.select())}
            logged = tx.conn.exec_driver_sql("SELECT count(*), count(DISTINCT id) FROM lease_events").one()
        database.close()
    billed = {name: sum(one.seconds for one in found) for name, found in stored.items()}
    assert billed.keys() == held.keys()
    ends = [(billed[name] - most / 1e9, least / 1e9 - billed[name]) for name, (least, most) in held.items()]
    return {
        "leases": len(billed),
        "max_over_s": round(max(0.0, *(over for over, _ in ends)), 6),
        "max_under_s": round(max(under for _, under in ends), 6),
        "doubled_gpu_seconds": sum(billed.values())
        - len({(n, s) for n, f in stored.items() for o in f for s in range(*o[1:])}),
        "doubled_events": logged[0] - logged[1],
    }


def sampled(sweeps: int) -> dict[str, float]:
    """Look at eight devices as a worker does once a second: NVIDIA's own bindings on the tests' stand-in for the driver."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/libnvidia-ml.so.1"
        named = ["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, str(DRIVER)]
        subprocess.run(named, check=True)
        ctypes.CDLL(library)  # the bindings find what is loaded by its name
        devices = [Device(uuid="GPU-h100", sku="H100-80GB")] * 8
        claim = _claim(0, BEGIN_S * 10**9).model_copy(update={"devices": devices})
        sampler = Sampler(claim, Path(folder), SystemClock())
        cpu_s = -time.process_time()
        for _ in range(sweeps):
            sampler.look()
        cpu_s += time.process_time()
        assert len(sampler.all()) == len(devices), "the stand-in did not answer"
    return {
        "devices": len(devices),
        "sweep_cpu_us": round(cpu_s / sweeps * 1e6, 1),
        "percent_of_a_core": round(cpu_s / sweeps * 100, 4),
    }


def _claim(number: int, wall_ns: int) -> ClaimReply:
    task = TaskView.model_construct(key=f"run-{number}.train", run_id=f"run-{number}", function="train")
    device = Device(uuid=f"GPU-{number}", sku="H100-80GB")
    return ClaimReply.model_construct(task=task, epoch=1, devices=[device], wall_anchor_ns=wall_ns, tags={})


def apart(part: Callable[..., dict[str, float]], *given: Any) -> dict[str, float]:
    """Measure a part in a process of its own."""
    print(f"measuring {part.__name__} ...", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(part, *given).result()


def main(scale: float) -> dict[str, Any]:
    """Measure everything."""
    figures: dict[str, float] = {}
    for name, found in (
        ("ingest_batches_of_100", apart(ingest, round(20_000 * scale), 100, 500)),
        ("ingest_bulk", apart(ingest, round(100_000 * scale), 10_000, 1000)),
        ("rated", apart(rated, round(1_000_000 * scale))),
        ("totals", apart(summed, 1000, max(1, round(84 * scale)), 595)),
        ("export", apart(exported, round(860_000 * scale))),
        ("event_to_billable", apart(billable, max(100, round(1000 * scale)))),
        ("meter", apart(metered, round(1000 * scale))),
        ("sampling", apart(sampled, round(3000 * scale))),
    ):
        figures |= {f"{name}_{what}": value for what, value in found.items()}
    return {
        "commit": subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        ).stdout.strip(),
        "scale": scale,
        "figures": figures,
        "bars": {
            name: {
                "bar": f"{sign} {bar:g}",
                "measured": figures[name],
                "ratio": round(figures[name] / bar, 3) if bar else None,
                "met": figures[name] >= bar if sign == ">=" else figures[name] <= bar,
            }
            for name, (sign, bar) in BARS.items()
        },
    }


if __name__ == "__main__":
    found = main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    text = json.dumps(found, indent=1)
    (Path(__file__).parent / "metering.json").write_text(text + "\n")
    print(text)
