"""The relay: carries wake-ups from the outbox to workers, at least once, and never decides anything.

Locally an event goes straight to an idle worker of its function. Where none is idle nothing is lost: a worker that
starts or becomes free asks for work itself, and the row is closed by its claim.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import sqlalchemy as sa

from trainlet.core import envelopes, traces
from trainlet.core.clocks import rfc3339
from trainlet.core.protocols import EventSink
from trainlet_functions.signatures import Signer
from trainlet_functions.state import outbox, schema
from trainlet_functions.state.database import Database

_LOG = logging.getLogger(__name__)


class LocalSink:
    """Delivers to an idle worker process of this machine; a worker counts as idle until it claims."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._http = httpx.Client(timeout=2.0, trust_env=False, verify=False)  # noqa: S501 - plain HTTP on loopback

    def deliver(self, headers: Mapping[str, str], body: bytes, project: str, function: str) -> bool:
        """Offer the event to idle workers until one takes it; False when there is none."""
        table = schema.workers
        idle = (
            (table.c.project == project)
            & (table.c.function == function)
            & table.c.busy.is_(False)
            & table.c.silent.is_(False)
            & table.c.url.is_not(None)
        )
        with self._database.read() as tx:
            urls = [row.url for row in tx.all(sa.select(table.c.url).where(idle).order_by(table.c.seen_ns.desc()))]
        for url in urls:
            try:
                response = self._http.post(url, content=body, headers=dict(headers))
            except httpx.TransportError:
                continue
            if response.status_code == 202:
                return True
        return False


class Relay:
    """Delivers what is due, a few events at a time."""

    def __init__(self, database: Database, sink: EventSink, signer: Signer) -> None:
        self._database = database
        self._sink = sink
        self._signer = signer
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="relay")

    def deliver_due(self) -> int:
        """Deliver every due wake-up once; returns how many were tried."""
        with self._database.read() as tx:
            rows = outbox.due(tx)
        list(self._pool.map(self._deliver, rows))
        return len(rows)

    def seconds_to_next(self, at_most: float) -> float:
        """Return how long there is nothing to do."""
        with self._database.read() as tx:
            next_ns, now_ns = outbox.next_due_ns(tx), tx.now_ns
        return at_most if next_ns is None else min(at_most, max(0.0, (next_ns - now_ns) / 1e9))

    def close(self) -> None:
        """Stop delivering."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, row: sa.Row[Any]) -> None:
        headers, body = self.event(row)
        error = "no idle worker yet"
        try:
            taken = self._sink.deliver(headers, body, row.project, row.function)
        except Exception as failure:  # noqa: BLE001 - a sink may fail in any way; the row stays and is tried again
            taken, error = False, f"{type(failure).__name__}: {failure}"
            about = {"task": row.task, "epoch": row.epoch}
            _LOG.warning("event %s was not delivered: %s", row.event_id, error, extra=about)
        with self._database.write() as tx:
            if taken:
                outbox.delivered(tx, row.id)
            else:
                outbox.failed(tx, row, error)

    def event(self, row: sa.Row[Any]) -> tuple[dict[str, str], bytes]:
        """Return the signed CloudEvent in binary mode."""
        body = str(row.data).encode()
        origin = envelopes.source(row.project)
        signature = self._signer.sign(envelopes.signed_bytes(row.type, origin, row.event_id, row.task, body))
        # CloudEvents' distributed tracing extension tells the receiver; the plain header tells the brokers on the way.
        trace = json.loads(body).get("traceparent", "")
        headers = {
            f"{envelopes.HEADER_PREFIX}{traces.HEADER}": trace,
            traces.HEADER: trace,
            "ce-specversion": "1.0",
            "ce-type": row.type,
            "ce-source": origin,
            "ce-id": row.event_id,
            "ce-subject": row.task,
            "ce-time": rfc3339(row.created_ns),
            f"ce-{envelopes.SIGNATURE}": signature,
            "content-type": "application/json",
        }
        return headers, body
