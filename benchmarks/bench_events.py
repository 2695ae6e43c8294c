"""Events: from HTTP to an accepted run, durable intake with a thousand subscriptions, dedupe with many ids, and polling.

    python benchmarks/bench_events.py [--ids 10000000] [--objects 1000000] [--only NAME] [--out events.json]

The application and the engine of triggers are the real ones, on a SQLite file of this machine with full synchronisation;
requests go through WSGI without a socket. The bucket that is polled is a process of its own (`bucket.py`), asked over
HTTP. One JSON document on stdout; `--only` measures one part anew and keeps the others of the file. Where it says
`cpu`, it is processor time of this process: on a machine that others use too, that is what can be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import sqlalchemy as sa

from trainlet.core import events
from trainlet.core.models import sha256_hex
from trainlet.core.settings import Settings
from trainlet.core.specs import Entry, FunctionSpec
from trainlet.core.triggers import Flow, Parameter, Poll, Program, Subscription
from trainlet_functions.api.app import create_app
from trainlet_functions.state import functions, tokens
from trainlet_functions.state.database import Database
from trainlet_functions.triggers import polling, registry, tables
from trainlet_functions.triggers.engine import Engine
from trainlet_functions.triggers.matching import Matcher

PROJECT, SUBSCRIPTIONS = "bench", 1000
FUNCTION = FunctionSpec(name="step", bundle="0" * 64, entry=Entry(module="m", qualname="step"))


class Stand:
    """What the application needs of a platform, without processes."""

    embedded = True

    def __init__(self, home: Path) -> None:
        self.settings = Settings(home=home)
        self.database = Database(f"sqlite:///{home / 'state.db'}")
        self.database.migrate()
        self.matcher = Matcher()
        self.engine = Engine(self.database, self.matcher)
        with self.database.write() as tx:
            self.token = tokens.create(tx, PROJECT, {"client"}, "bench")
            functions.register(tx, PROJECT, FUNCTION)
        self.http = create_app(self).test_client()  # type: ignore[arg-type]

    def touch(self) -> None:
        """Note nothing: nobody stops for want of use here."""

    def identify(self, token: str) -> tokens.Identity:
        """Return who a token belongs to."""
        with self.database.read() as tx:
            return tokens.verify(tx, token)

    def subscribe(self, names: dict[str, str], poll: Poll | None = None, **flow: Any) -> None:
        """Register subscriptions, each to one type."""
        node = {"id": "step", "function": "step", "digest": FUNCTION.digest()}
        inputs = {"inputs": {"data": {"kind": "parameter", "name": "data"}}}
        graph = {"name": "bench", "required": ["data"], "nodes": [{**node, **inputs}]}
        with self.database.write() as tx:
            for name, kind in names.items():
                spec = Subscription(
                    program=Program(pipeline="bench", graph=graph),
                    filters=[{"exact": {"type": kind}}, {"prefix": {"subject": "images/"}}],
                    params={"data": Parameter(path="$.data.uri", has_default=True)},
                    flow=Flow(**flow),
                    poll=poll,
                )
                registry.put(tx, PROJECT, name, spec)

    def post(self, *given: events.Event) -> None:
        """Send events as one request."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": events.BATCH}
        body = json.dumps([event.to_json() for event in given])
        answer = self.http.post("/v1/events", data=body, headers=headers)
        assert answer.status_code == 202, answer.data


def event(number: int, kind: str = "com.example.other") -> events.Event:
    """Return an event that is as large as a notification of a store."""
    data = {"uri": f"s3://bucket/images/{number}.png", "bucket": "bucket", "size_bytes": number, "etag": "0" * 32}
    return events.make(kind, "s3://bucket", sha256_hex(str(number).encode())[:32], data, subject=f"images/{number}.png")


def measure_latency(stand: Stand, count: int = 200) -> dict[str, float]:
    """Send events one by one, each when the run of the one before is there; the engine waits as it does in the platform."""
    stand.subscribe({"latency": "com.example.latency"})
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            seen = stand.database.change_count
            if not stand.engine.work():
                stand.database.wait_for_change(seen, stand.engine.seconds_to_next(1.0))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    number = sa.select(sa.func.count()).select_from(tables.firings)
    took: list[float] = []
    cpu_s = time.process_time()
    for index in range(count):
        began = time.perf_counter()
        stand.post(event(10**9 + index, "com.example.latency"))
        while True:
            seen = stand.database.change_count
            with stand.database.read() as tx:
                if tx.conn.execute(number).scalar_one() > index:
                    break
            stand.database.wait_for_change(seen, 1.0)
        took.append(1000 * (time.perf_counter() - began))
    stop.set()
    thread.join()
    cuts, cpu_ms = quantiles(took, n=100), 1000 * (time.process_time() - cpu_s) / count
    return {"events": count, "cpu_ms": round(cpu_ms, 2), "p50_ms": round(median(took), 2), "p99_ms": round(cuts[98], 2)}


def measure_intake(stand: Stand, batch: int = 100, seconds: float = 6.0) -> dict[str, float]:
    """Send batches with a thousand subscriptions, one of ten events for one of them; each is durable when it is answered."""
    names = {f"s{index}": f"com.example.s{index}" for index in range(SUBSCRIPTIONS)}
    stand.subscribe(names, window_s=3600, max_batch=10_000)
    kinds = ["com.example.other"] * 9
    sent, began = 0, time.perf_counter()
    stand.post(event(2 * 10**9))  # compiles the subscriptions
    compiled_s = time.perf_counter() - began
    began, cpu_s = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        stand.post(*(event(sent + one, [*kinds, f"com.example.s{one}"][one % 10]) for one in range(batch)))
        sent += batch
    rate = sent / (time.perf_counter() - began)
    about = {"subscriptions": SUBSCRIPTIONS, "batch": batch, "events": sent}
    per_cpu = sent / (time.process_time() - cpu_s)
    return {
        **about,
        "events_per_s": round(rate),
        "events_per_cpu_s": round(per_cpu),
        "compile_ms": round(1000 * compiled_s),
    }


def _fill(stand: Stand, ids: int, part: int = 250_000) -> None:
    """Store ids that are spread over all that there can be, in their order: a tree as large as any, made quickly."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last) "
    row = f"SELECT :project, printf('%016x%016x', i * {2**63 // max(ids, 1)}, i), 's3://bucket', '0', i FROM n"
    fill = f"INSERT INTO inbox (project, id, source, payload_hash, event) {numbers}{row}"
    for first in range(1, ids + 1, part):
        with stand.database.write() as tx:
            known = {"first": first, "last": min(first + part - 1, ids), "project": PROJECT}
            tx.conn.execute(sa.text(fill), known)


def measure_dedupe(stand: Stand, ids: int) -> dict[str, float]:
    """Send batches beside few and beside many stored ids: new ones, and ones that had come before."""

    def rounds(start: int) -> tuple[float, float]:
        new: list[float] = []
        again: list[float] = []
        for index in range(20):
            batch = [event(start + 100 * index + one) for one in range(100)]
            for times in (new, again):
                began = time.process_time()
                stand.post(*batch)
                times.append(1000 * (time.process_time() - began))
        return round(median(new), 2), round(median(again), 2)

    few = rounds(3 * 10**9)
    began = time.perf_counter()
    _fill(stand, ids)
    filled_s = time.perf_counter() - began
    forget_peak()
    many = rounds(4 * 10**9)
    return {
        "ids": ids,
        "fill_s": round(filled_s, 1),
        "file_mib": round(Path(str(stand.database.engine.url.database)).stat().st_size / 2**20),
        "peak_rss_mib": round(peak_bytes() / 2**20, 1),
        "new_100_cpu_ms_few": few[0],
        "new_100_cpu_ms_many": many[0],
        "again_100_cpu_ms_few": few[1],
        "again_100_cpu_ms_many": many[1],
    }


def forget_peak() -> None:
    """Let the peak of this process's memory begin at what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the most memory that this process had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@contextlib.contextmanager
def bucket(objects: int) -> Iterator[None]:
    """Serve a bucket with very many objects, which the AWS variables of this process name meanwhile."""
    served = [sys.executable, str(Path(__file__).with_name("bucket.py")), str(objects)]
    with subprocess.Popen(served, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            os.environ["AWS_ENDPOINT_URL"] = process.stdout.readline().strip()
            os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "bench"
            yield
        finally:
            process.terminate()


def measure_polling(stand: Stand, objects: int) -> dict[str, float]:
    """Look twice at a bucket with many objects that were there before; the second look finds nothing new."""
    stand.subscribe({"polls": "dev.trainlet.object.created"}, Poll(url="s3://bucket/images", every_s=60))
    with stand.database.read() as tx:
        (trigger,) = [row for row in polling.due(tx) if row.name == "polls"]
    seen = sa.select(sa.func.count()).select_from(tables.polled)
    found: dict[str, float] = {"objects": objects}
    with bucket(objects):
        for name in ("first", "again"):
            forget_peak()
            before_bytes, began, cpu_s = peak_bytes(), time.perf_counter(), time.process_time()
            polling.look(stand.database, stand.matcher, trigger)
            took_s = time.perf_counter() - began
            found[f"{name}_s"] = round(took_s, 1)
            found[f"{name}_cpu_s"] = round(time.process_time() - cpu_s, 1)
            found[f"{name}_per_s"] = round(objects / took_s)
            found[f"{name}_peak_rss_mib"] = round(peak_bytes() / 2**20, 1)
            found[f"{name}_grown_mib"] = round((peak_bytes() - before_bytes) / 2**20, 1)
    with stand.database.read() as tx:
        assert tx.conn.execute(seen).scalar_one() == objects
        reason = tx.conn.execute(sa.select(tables.triggers.c.reason)).scalar_one()
        assert reason == "", reason
    return found


def commit() -> str:
    """Return the commit that is measured; with a plus when files differ from it."""
    told = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    return subprocess.run(told, capture_output=True, text=True, cwd=Path(__file__).parent, check=False).stdout.strip()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000_000, help="ids that are stored when dedupe is measured")
    parser.add_argument("--objects", type=int, default=50_000, help="objects of the bucket that is polled")
    parser.add_argument("--only", metavar="NAME", action="append", help="measure this part only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.only and options.out is not None and options.out.exists():
        results = json.loads(options.out.read_text())
    parts = {
        "event_to_run": measure_latency,
        "intake": measure_intake,
        "dedupe": lambda stand: measure_dedupe(stand, options.ids),
        "polling": lambda stand: measure_polling(stand, options.objects),
    }
    for name, part in parts.items():
        if options.only and name not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix="trainlet-bench-") as home:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            about = {
                "commit": commit(),
                "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "load_average": round(os.getloadavg()[0], 1),
            }
            stand = Stand(Path(home))
            results[name] = {**about, **part(stand)}
            stand.database.close()
            print(json.dumps({name: results[name]}), file=sys.stderr, flush=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    results = {"machine": machine, **{name: results[name] for name in parts if name in results}}
    text = json.dumps(results, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
