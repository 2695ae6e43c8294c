"""Events: from HTTP to an accepted run, durable intake with a thousand subscriptions, dedupe with many ids, and polling.

    python benchmarks/bench_events.py [--ids 1000000] [--objects 100000] [--out events.json]

The application and the engine of triggers are the real ones, on a SQLite file of this machine with full synchronisation;
requests go through WSGI without a socket. One JSON document on stdout. Where it says `cpu`, it is
processor time of this process: on a machine that others use too, that is what can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
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
from trainlet.core.settings import Settings
from trainlet.core.specs import Entry, FunctionSpec
from trainlet.core.triggers import Flow, Parameter, Poll, Program, Subscription
from trainlet_functions.api.app import create_app
from trainlet_functions.state import functions, tokens
from trainlet_functions.state.database import Database
from trainlet_functions.triggers import places, polling, registry, tables
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
    return events.make(kind, "s3://bucket", f"id-{number:012d}", data, subject=f"images/{number}.png")


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
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :ids) "
    row = "SELECT :project, lower(hex(randomblob(16))), 's3://bucket', '0', i FROM n"
    fill = f"INSERT INTO inbox (project, id, source, payload_hash, event) {numbers}{row}"
    began = time.perf_counter()
    with stand.database.write() as tx:
        tx.conn.execute(sa.text(fill), {"ids": ids, "project": PROJECT})
    filled_s = time.perf_counter() - began
    many = rounds(4 * 10**9)
    return {
        "ids": ids,
        "fill_s": round(filled_s, 1),
        "new_100_cpu_ms_few": few[0],
        "new_100_cpu_ms_many": many[0],
        "again_100_cpu_ms_few": few[1],
        "again_100_cpu_ms_many": many[1],
    }


def resident_bytes() -> int:
    """Return how much memory this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Store(places.Place):
    """A place with very many objects, none of which is held in memory."""

    settle_s = 0.0
    skew_s = 0.0

    def __init__(self, count: int) -> None:
        self._count = count
        self.most_bytes = 0

    def list(self) -> Iterator[places.Found]:
        """Yield them in the order of their keys, as a bucket does, and look at the memory of this process now and then."""
        for number in range(self._count):
            if number % 1000 == 0:
                self.most_bytes = max(self.most_bytes, resident_bytes())
            yield places.Found(f"images/{number:09d}.png", 10, "etag", 0)

    def content(self, found: places.Found) -> str | None:
        """Return what stands for the content."""
        return found.mark

    def about(self, found: places.Found) -> dict[str, Any]:
        """Return the data of its event."""
        return {"uri": found.key}


def measure_polling(stand: Stand, objects: int) -> dict[str, float]:
    """Look twice at a place with many objects that were there before; the second look finds nothing new."""
    stand.subscribe({"polls": "dev.trainlet.object.created"}, Poll(url="s3://bucket/images", every_s=60))
    place = Store(objects)
    places.open_place = lambda url: place  # type: ignore[assignment]
    with stand.database.read() as tx:
        (trigger,) = [row for row in polling.due(tx) if row.name == "polls"]
    before_bytes = resident_bytes()
    took = []
    for _ in range(2):
        began = time.perf_counter()
        polling.look(stand.database, stand.matcher, trigger)
        took.append(objects / (time.perf_counter() - began))
    return {
        "objects": objects,
        "first_per_s": round(took[0]),
        "again_per_s": round(took[1]),
        "memory_mib": round((place.most_bytes - before_bytes) / 2**20, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000_000, help="ids that are stored when dedupe is measured")
    parser.add_argument("--objects", type=int, default=50_000, help="objects of the place that is polled")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "load_average": [round(one, 1) for one in os.getloadavg()],
    }
    parts = {
        "event_to_run": measure_latency,
        "intake": measure_intake,
        "dedupe": lambda stand: measure_dedupe(stand, options.ids),
        "polling": lambda stand: measure_polling(stand, options.objects),
    }
    for name, part in parts.items():
        with tempfile.TemporaryDirectory(prefix="trainlet-bench-") as home:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            stand = Stand(Path(home))
            results[name] = part(stand)
            stand.database.close()
            print(json.dumps({name: results[name]}), file=sys.stderr, flush=True)
    text = json.dumps(results, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
