"""The platform: one process that holds the API's parts together and keeps them going.

It owns the threads (supervisor, relay, demand) and their orderly end. The parts do not know each other: they meet in
the database, and a change there wakes whoever waits.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from trainlet.client.stores import open_store
from trainlet.core.clocks import SystemClock
from trainlet.core.errors import AccessError, TrainletError
from trainlet.core.protocols import EventSink, FunctionBackend, ObjectStore
from trainlet.core.settings import Settings
from trainlet_functions import devices as inventories
from trainlet_functions import metering
from trainlet_functions.billing import book, pricefiles
from trainlet_functions.pool import CLEAN_EXIT, LocalPool
from trainlet_functions.relay import LocalSink, Relay
from trainlet_functions.signatures import Signer
from trainlet_functions.state import admission, attempts, devices, schema, supervisor, tokens
from trainlet_functions.state.database import Capacity, Database, Transaction
from trainlet_functions.worker import spool

_LOG = logging.getLogger(__name__)
TICK_S = 0.25


class Platform:
    """Everything behind the HTTP API of one process."""

    def __init__(self, settings: Settings, *, embedded: bool) -> None:
        self.settings = settings
        self.embedded = embedded
        home = settings.home
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        database_url = os.environ.get("TRAINLET_DATABASE_URL") or f"sqlite:///{home / 'state.db'}"
        self.database = Database(
            database_url,
            SystemClock(),
            limits=settings.limits,
            capacity=Capacity(owns_devices=True, cpu_slots=max(8, 2 * (os.cpu_count() or 1))),
            prices=pricefiles.load(home),
        )
        self.store: ObjectStore = open_store(os.environ.get("TRAINLET_STORE") or str(home / "store"))
        self.signer = Signer.load(home / "signing.key")
        self.closing = threading.Event()
        self.backend: FunctionBackend
        self._relay: Relay
        self._supervisor = supervisor.Supervisor(self.database, self.store)
        self._threads: list[threading.Thread] = []
        self._last_use = time.monotonic()
        self._known_packages: dict[str, str] | None = None

    def start(self, url: str) -> str:
        """Migrate, take up what is there, start the threads; returns a client token of this process's life."""
        self.database.migrate()
        with self.database.write() as tx:
            devices.register(tx, inventories.local_inventory().devices())
            tx.run(schema.workers.delete())
            book.settle(tx, "the first start of the platform")
            going = supervisor.grace_after_restart(tx)
            token = self._client_token(tx)
        if going:
            _LOG.info(
                "took up %d running attempts of an earlier platform; their workers have a lease time to report", going
            )
        self.backend = LocalPool(
            home=self.settings.home,
            api_url=url,
            mint_token=self._mint_token,
            public_key=self.signer.public_key,
            store_url=self.store.url,
            limits=self.settings.limits,
            on_exit=self._worker_exited,
        )
        sink: EventSink = LocalSink(self.database)
        self._relay = Relay(self.database, sink, self.signer)
        for name, body in (("supervisor", self._supervise), ("relay", self._deliver), ("demand", self._state_demand)):
            thread = threading.Thread(target=self._forever, args=(name, body), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return token

    def _client_token(self, tx: Transaction) -> str:
        """Return the token of this home's clients; it stays over restarts, so that whoever waits can go on."""
        path = self.settings.home / "client.token"
        with contextlib.suppress(OSError, AccessError):
            token = path.read_text()
            tokens.verify(tx, token).require("admin")
            return token
        # Who owns this home owns its books, too: prices, budgets and periods.
        token = tokens.create(tx, self.settings.project, {"client", "admin"}, "embedded client")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
        return token

    def touch(self) -> None:
        """Note that somebody uses the platform."""
        self._last_use = time.monotonic()

    def idle(self) -> bool:
        """Say whether nothing runs and nobody asked for a while."""
        if time.monotonic() - self._last_use < self.settings.limits.idle_s:
            return False
        live = schema.tasks.c.state.in_(("queued", "dispatched", "running"))
        with self.database.read() as tx:
            return tx.conn.execute(sa.select(schema.tasks.c.key).where(live).limit(1)).first() is None

    def packages(self) -> dict[str, str]:
        """Return the distributions that a worker without a lock has (name -> version)."""
        if self._known_packages is None:
            self._known_packages = {
                str(one.metadata["Name"]).lower(): one.version for one in importlib.metadata.distributions()
            }
        return self._known_packages

    def close(self) -> None:
        """Stop taking work, let the workers save and stop, and close the database."""
        self.closing.set()
        self.backend.close()
        self._relay.close()
        for thread in self._threads:
            thread.join(timeout=5.0)
        with self.database.write() as tx:
            supervisor.abdicate(tx, self._supervisor.name)
        self.database.close()

    # -- threads

    def _forever(self, name: str, body: Callable[[int], float]) -> None:
        """Run a duty after every change and at least every so often, whatever it raises."""
        while not self.closing.is_set():
            seen = self.database.change_count
            try:
                pause_s = body(seen)
            except TrainletError as error:
                _LOG.warning("%s: %s", name, error)
                pause_s = 1.0
            except Exception:  # noqa: BLE001 - a duty that stops would stop the platform
                _LOG.exception("%s failed; it goes on", name)
                pause_s = 1.0
            if pause_s > 0 and not self.closing.is_set():
                self.database.wait_for_change(seen, pause_s)

    def _supervise(self, _seen: int) -> float:
        self._supervisor.tick()
        self.closing.wait(TICK_S)
        return 0.0

    def _deliver(self, _seen: int) -> float:
        return 0.0 if self._relay.deliver_due() else self._relay.seconds_to_next(1.0)

    def _state_demand(self, _seen: int) -> float:
        with self.database.read() as tx:
            wanted = admission.demand(tx)
        for (project, _), (spec, workers) in wanted.items():
            self.backend.demand(project, spec, workers)
        return 1.0

    # -- what the pool asks for

    def _mint_token(self, project: str, function: str) -> str:
        with self.database.write() as tx:
            return tokens.create(tx, project, {f"worker:{function}"}, f"worker of {function}")

    def _worker_exited(self, project: str, worker: str, folder: Path, reason: str) -> None:
        """Take in what a dead worker had still spooled, then give its attempts to others."""
        left = spool.read_leftover(folder)
        with self.database.write() as tx:
            if left:
                metering.ingest(tx, project, left)
            for key in attempts.worker_gone(tx, worker, reason):
                _LOG.info("task %s lost its worker %s: %s", key, worker, reason)
        if reason == CLEAN_EXIT:
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that crashed the log is kept
