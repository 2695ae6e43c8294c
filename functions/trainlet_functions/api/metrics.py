"""`/metrics`: the platform itself, for Prometheus. What is counted and what alerts look at is docs/operations.md.

Everything but the requests of this process is read from the database when somebody asks, so every replica says the same:
take the maximum over replicas, not the sum.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from flask import Flask, Response, g, request
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trainlet_functions.api import gauges
from trainlet_functions.api.routes import Routes
from trainlet_functions.platform import Platform
from trainlet_functions.state import schema
from trainlet_functions.state.database import Transaction

routes = Routes()
BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 35.0)  # long polls wait up to 30 s
_COUNT = sa.func.count().label("number")
_TASKS, _OUTBOX = schema.tasks, schema.outbox


@routes.add("GET", "/metrics", "public", media="text/plain")
def metrics(platform: Platform) -> Response:
    """Return Prometheus metrics, read from the database at this moment."""
    registry = CollectorRegistry()
    registry.register(_Now(platform))
    text = generate_latest(registry) + generate_latest(g.requests)
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


def install(app: Flask) -> None:
    """Time every request of this process by its route."""
    registry = CollectorRegistry()
    names = ["method", "route", "status"]
    seconds = Histogram("trainlet_http_seconds", "Time to answer", names, registry=registry, buckets=BUCKETS)

    @app.before_request
    def begin() -> None:
        g.requests, g.begun = registry, time.perf_counter()

    @app.after_request
    def end(response: Response) -> Response:
        route = "none" if request.url_rule is None else request.url_rule.rule
        status = f"{response.status_code // 100}xx"
        seconds.labels(request.method, route, status).observe(time.perf_counter() - g.begun)
        return response


class _Now:
    """Collects what is so at the moment."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        build = GaugeMetricFamily("trainlet_build_info", "The version that answers", labels=["version"])
        build.add_metric([importlib.metadata.version("trainlet")], 1)
        yield build
        with self._platform.database.read() as tx:
            yield from _waiting(tx)
            yield from _delivery(tx)
            yield from _held(tx)
            yield from gauges.used(tx)
            yield from gauges.held(tx)
            yield from gauges.ledger(tx, self._platform.settings.home)
        failed = getattr(self._platform.backend, "failed_applies", None)
        if failed is not None:
            text = "Kubernetes objects of functions that could not be applied, by this process"
            yield CounterMetricFamily("trainlet_failed_applies", text, value=failed)


def _waiting(tx: Transaction) -> Iterator[Metric]:
    states = GaugeMetricFamily("trainlet_tasks", "Tasks by state", labels=["project", "state"])
    for row in tx.all(sa.select(_TASKS.c.project, _TASKS.c.state, _COUNT).group_by(_TASKS.c.project, _TASKS.c.state)):
        states.add_metric([row.project, row.state], row.number)
    yield states
    names = ["project", "function"]
    unclaimed = GaugeMetricFamily("trainlet_unclaimed_tasks", "Dispatched tasks that no worker has taken", labels=names)
    oldest = GaugeMetricFamily("trainlet_unclaimed_seconds", "How long the oldest of them waits", labels=names)
    columns = (_TASKS.c.project, _TASKS.c.function)
    since = sa.func.min(_TASKS.c.updated_ns).label("since_ns")
    for row in tx.all(sa.select(*columns, _COUNT, since).where(_TASKS.c.state == "dispatched").group_by(*columns)):
        unclaimed.add_metric([row.project, row.function], row.number)
        oldest.add_metric([row.project, row.function], _age_s(tx, row.since_ns))
    yield unclaimed
    yield oldest
    queued = GaugeMetricFamily("trainlet_queued_seconds", "How long the oldest queued task waits", labels=["project"])
    first = sa.func.min(_TASKS.c.updated_ns).label("since_ns")
    for row in tx.all(sa.select(_TASKS.c.project, first).where(_TASKS.c.state == "queued").group_by(_TASKS.c.project)):
        queued.add_metric([row.project], _age_s(tx, row.since_ns))
    yield queued


def _delivery(tx: Transaction) -> Iterator[Metric]:
    due = _OUTBOX.c.due_ns.is_not(None) & _OUTBOX.c.function.is_not(None)
    oldest = tx.conn.execute(sa.select(sa.func.min(_OUTBOX.c.created_ns)).where(due)).scalar()
    lag_s = 0.0 if oldest is None else _age_s(tx, oldest)
    yield GaugeMetricFamily("trainlet_outbox_lag_seconds", "Age of the oldest wake-up that is not delivered", lag_s)
    dead = _number(tx, _OUTBOX, _OUTBOX.c.dead_ns.is_not(None))
    yield GaugeMetricFamily("trainlet_dead_letters", "Events that could not be delivered", dead)
    letters = schema.letters
    sent = GaugeMetricFamily("trainlet_sink_letters", "Events on their way to sinks, or dead", labels=["state"])
    for state, column in (("waiting", letters.c.due_ns), ("dead", letters.c.dead_ns)):
        sent.add_metric([state], _number(tx, letters, column.is_not(None)))
    yield sent


def _held(tx: Transaction) -> Iterator[Metric]:
    attempts, workers, devices = schema.attempts, schema.workers, schema.devices
    stale = _number(tx, attempts, (attempts.c.state == "running") & (attempts.c.lease_until_ns < tx.now_ns))
    text = "Running attempts whose lease has run out and that nobody has given up yet"
    yield GaugeMetricFamily("trainlet_stale_leases", text, stale)
    family = GaugeMetricFamily("trainlet_workers", "Workers by function", labels=["project", "function", "busy"])
    columns = (workers.c.project, workers.c.function, workers.c.busy)
    for row in tx.all(sa.select(*columns, _COUNT).group_by(*columns)):
        family.add_metric([row.project, row.function, str(bool(row.busy)).lower()], row.number)
    yield family
    held = GaugeMetricFamily("trainlet_devices", "Devices of this machine", labels=["held"])
    held.add_metric(["true"], _number(tx, devices, devices.c.task.is_not(None)))
    held.add_metric(["false"], _number(tx, devices, devices.c.task.is_(None)))
    yield held


def _number(tx: Transaction, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    return int(tx.conn.execute(sa.select(_COUNT).select_from(table).where(where)).scalar_one())


def _age_s(tx: Transaction, since_ns: Any) -> float:
    return max(0.0, (tx.now_ns - int(since_ns)) / 1e9)
