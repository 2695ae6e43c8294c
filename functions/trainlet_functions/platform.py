"""The platform: one process that holds the API's parts together and keeps them going.

It owns the threads (supervisor, relay, demand, upkeep, triggers, drivers, sinks) and their orderly end. The parts do not know
each other: they meet in the database, and a change there wakes whoever waits. What starts workers is the only difference
between a platform of one machine and a replica on a cluster.
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
from typing import TYPE_CHECKING

import sqlalchemy as sa

from trainlet.client.stores import open_store
from trainlet.core.clocks import SystemClock
from trainlet.core.errors import AccessError, TrainletError, UserError
from trainlet.core.protocols import EventSink, FunctionBackend, ObjectStore
from trainlet.core.settings import Settings
from trainlet.core.specs import FunctionSpec
from trainlet_functions import devices as inventories
from trainlet_functions.billing import book, pricefiles
from trainlet_functions.drivers import Drivers
from trainlet_functions.metering import samples
from trainlet_functions.pool import CLEAN_EXIT, LocalPool
from trainlet_functions.relay import LocalSink, Relay
from trainlet_functions.signatures import Signer
from trainlet_functions.sinks import fanout
from trainlet_functions.sinks.addresses import Rule
from trainlet_functions.sinks.courier import Courier
from trainlet_functions.spans import Spans
from trainlet_functions.state import admission, attempts, devices, functions, ledger, schema, supervisor, tokens
from trainlet_functions.state.database import Capacity, Database, Transaction
from trainlet_functions.state.tokens import Identity
from trainlet_functions.triggers import registry, sns
from trainlet_functions.triggers.engine import Engine
from trainlet_functions.triggers.matching import Matcher
from trainlet_functions.worker import spool

if TYPE_CHECKING:
    from trainlet_knative.clusters import Cluster
    from trainlet_knative.reviews import TokenReviewer

_LOG = logging.getLogger(__name__)
TICK_S = 0.25
KUBEFLOW = "KF_PIPELINES_ENDPOINT"
KEEP_UP_S = 60.0
HAND_ON_S = 0.1
LOOK_S = 5.0
UNUSED_S = 30 * 24 * 3600.0  # a function that nobody used for so long gives up its objects until it is used again


class Platform:
    """Everything behind the HTTP API of one process. With a `cluster` it is one of its replicas, else a machine of its own."""

    def __init__(self, settings: Settings, *, embedded: bool, cluster: Cluster | None = None) -> None:
        self.settings = settings
        self.embedded = embedded
        home = settings.home
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        local = Capacity(owns_devices=True, cpu_slots=max(8, 2 * (os.cpu_count() or 1)))
        self.database = Database(
            os.environ.get("TRAINLET_DATABASE_URL") or f"sqlite:///{home / 'state.db'}",
            SystemClock(),
            limits=settings.limits,
            capacity=local if cluster is None else Capacity(owns_devices=False, cpu_slots=None),
            prices=pricefiles.load(home),
        )
        store_url = os.environ.get("TRAINLET_STORE") or (str(home / "store") if cluster is None else cluster.store_url)
        self.store: ObjectStore = open_store(store_url)
        self.signer = Signer.load(Path(os.environ.get("TRAINLET_SIGNING_KEY_FILE") or home / "signing.key"))
        self.spans = Spans.from_environment("trainlet-api", os.environ)
        self._cluster = cluster
        self._unused_s = UNUSED_S if cluster is None else cluster.unused_s
        self._reviewer: TokenReviewer | None = None
        self.closing = threading.Event()
        self.backend: FunctionBackend
        self._relay: Relay
        self._supervisor = supervisor.Supervisor(self.database, self.store)
        self.matcher = Matcher()
        self._engine = Engine(self.database, self.matcher)
        self._drivers: Drivers
        self.courier = Courier(self.database, self.signer, Rule(cluster, embedded))
        self.certificates = sns.Certificates.from_environment()
        self._threads: list[threading.Thread] = []
        self._last_use = time.monotonic()
        self._next_look = 0.0
        self._stated: dict[tuple[str, str], FunctionSpec] = {}  # functions for which workers are wanted
        self._known_packages: dict[str, str] | None = None

    def start(self, url: str) -> str:
        """Migrate, take up what is there, start the threads; returns a client token of this process's life."""
        self.database.migrate()
        with self.database.write() as tx:
            if self._cluster is None:
                devices.register(tx, inventories.local_inventory().devices())
                tx.run(schema.workers.delete())
            book.settle(tx, "the first start of the platform")
            going = supervisor.grace_after_restart(tx)
            token = self._client_token(tx)
        if going:
            _LOG.info(
                "took up %d running attempts of an earlier platform; their workers have a lease time to report", going
            )
        self._relay = Relay(self.database, self._connect(url), self.signer)
        self._drivers = Drivers(self.database, self.settings.home, url, self._mint_driver_token)
        duties = {
            "supervisor": self._supervise,
            "relay": self._deliver,
            "demand": self._state_demand,
            "upkeep": self._keep_up,
            "forgetting": self._forget,
            "triggers": self._work_triggers,
            "drivers": self._keep_drivers,
            "polls": self._poll_places,
            "news": self._hand_on,
            "sinks": self._send_letters,
        }
        for name, body in duties.items():
            thread = threading.Thread(target=self._forever, args=(name, body), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return token

    def _connect(self, url: str) -> EventSink:
        """Make what starts workers, and return the way of events to them."""
        if self._cluster is None:
            self.backend = LocalPool(
                home=self.settings.home,
                api_url=url,
                mint_token=self._mint_token,
                public_key=self.signer.public_key,
                store_url=self.store.url,
                limits=self.settings.limits,
                on_exit=self._worker_exited,
            )
            return LocalSink(self.database)
        from trainlet_knative.backend import KnativeBackend
        from trainlet_knative.connections import Kubernetes
        from trainlet_knative.reviews import TokenReviewer
        from trainlet_knative.sinks import BrokerSink
        from trainlet_knative.tokens import OwnTokens

        cluster = self._cluster.model_copy(update={"public_key": self.signer.public_key})
        kubernetes = Kubernetes()
        self.backend = KnativeBackend(cluster, kubernetes)
        self._reviewer = TokenReviewer(cluster, kubernetes)
        own = OwnTokens(kubernetes) if cluster.oidc else None
        return BrokerSink(cluster.broker_url, audience_of=cluster.broker_audience, tokens=own)

    def identify(self, token: str) -> Identity:
        """Return who a bearer token belongs to: one of ours, a pod's, or a sender's on the cluster. Raises AccessError."""
        if self._reviewer is not None and token.count(".") == 2:  # a JSON Web Token; ours have no dots
            from trainlet_knative.reviews import ClientIdentity, SenderIdentity

            found = self._reviewer.review(token)
            if isinstance(found, SenderIdentity):
                return Identity(found.project, frozenset({"events"}), f"service account {found.account}")
            if isinstance(found, ClientIdentity):
                return Identity(found.project, frozenset({"client"}), f"pod {found.pod}")
            label = f"pod {found.worker}"
            return Identity(found.project, frozenset({f"worker:{found.function}"}), label, worker=found.worker)
        with self.database.read() as tx:
            return tokens.verify(tx, token)

    def check_sender(self, project: str, function: str, token: str) -> None:
        """Return when the token of an event is its Trigger's; raises AccessError. Without a cluster nobody has one."""
        if self._reviewer is not None:
            self._reviewer.review_trigger(project, function, token)

    @property
    def believes_brokers(self) -> bool:
        """Say whether what comes from a broker is taken without proof of who sent it: an admin wrote `open_events`."""
        return self._cluster is not None and self._cluster.open_events and not self._cluster.oidc

    def kubeflow_namespace(self, project: str) -> str | None:
        """Return where a project's runs are in Kubeflow Pipelines (None: it has no namespaces); UserError: nowhere."""
        if not os.environ.get(KUBEFLOW):
            raise UserError(
                f"This training API starts no runs of Kubeflow Pipelines: its administrator sets {KUBEFLOW} to the address."
            )
        if self._cluster is None:
            return None
        for namespace, owner in self._cluster.kubeflow_namespaces.items():
            if owner == project:
                return namespace
        raise AccessError(
            f"Project {project!r} has no namespace of Kubeflow Pipelines. An administrator writes "
            f"`kubeflow_namespaces: {{NAMESPACE: {project}}}` into cluster.yaml."
        )

    def _client_token(self, tx: Transaction) -> str:
        """Return the token of this home's clients; it stays over restarts, so that whoever waits can go on."""
        given = os.environ.get("TRAINLET_BOOTSTRAP_TOKEN")
        if given:
            tokens.ensure(tx, given, self.settings.project, {"admin", "client"}, "bootstrap")
            return given
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
            busy = tx.conn.execute(sa.select(schema.tasks.c.key).where(live).limit(1)).first() is not None
            return not busy and not registry.active(tx)

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
        self._drivers.close()
        self.backend.close()
        self._relay.close()
        if self.spans is not None:
            self.spans.close()
        self.courier.close()
        for thread in self._threads:
            thread.join(timeout=5.0)
        with self.database.write() as tx:
            supervisor.abdicate(tx, self._supervisor.name)
        self.database.close()

    # -- threads

    def _forever(self, name: str, body: Callable[[int], float]) -> None:
        """Run a duty after every change and at least every so often, whatever it raises."""
        said = ""
        while not self.closing.is_set():
            seen = self.database.change_count
            try:
                pause_s = body(seen)
                said = ""
            except TrainletError as error:
                if str(error) != said:  # once: the log may be on the disk that is full
                    _LOG.warning("%s: %s", name, error)
                said, pause_s = str(error), 1.0
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
        """State how many workers each function needs; a function that needs none any more is told so once."""
        if not self._supervisor.leading:
            return 1.0
        with self.database.read() as tx:
            wanted = admission.demand(tx)
        for (project, _), (spec, workers) in wanted.items():
            self.backend.demand(project, spec, workers)
        for key in self._stated.keys() - wanted.keys():
            self.backend.demand(key[0], self._stated[key], 0)
        self._stated = {key: spec for key, (spec, _) in wanted.items()}
        self._explain_waiting()
        return 1.0

    def _explain_waiting(self) -> None:
        """Let tasks that wait for a worker say what its pod waits for: an image, a node, a quota."""
        now = time.monotonic()
        if self._cluster is None or now < self._next_look:
            return
        self._next_look = now + LOOK_S
        with self.database.read() as tx:
            waiting = admission.waiting_for_workers(tx)
        for project in {project for project, _ in waiting}:
            found = self.backend.status(project)
            for function, keys in ((name, keys) for (of, name), keys in waiting.items() if of == project):
                reason = found[function].reason if function in found else "it has no objects on the cluster"
                with self.database.write() as tx:
                    for key in keys if reason else ():
                        attempts.explain(tx, key, f"waiting for a worker: {reason}")

    def _keep_up(self, _seen: int) -> float:
        """Have the backend make what it keeps in the outside world what it should be."""
        if self._supervisor.leading:
            with self.database.read() as tx:
                kept, projects = functions.kept(tx, unused_s=self._unused_s), functions.projects(tx)
                watches = registry.watched(tx)
            self.backend.keep(kept, watches, projects)
            self._note_cold_starts({project for project, _ in kept})
        self.closing.wait(KEEP_UP_S if self._supervisor.leading else TICK_S)
        return 0.0

    def _forget(self, _seen: int) -> float:
        """Forget what was handed on and delivered long ago, however the backend is doing."""
        if self._supervisor.leading:
            fanout.forget(self.database)
        self.closing.wait(KEEP_UP_S if self._supervisor.leading else TICK_S)
        return 0.0

    def _note_cold_starts(self, projects: set[str]) -> None:
        """Remember how pods started while they are there: a warm pod stays for longer than the pause between two looks."""
        for project in sorted(projects):
            starts = {name: one.cold_start for name, one in self.backend.status(project).items() if one.cold_start}
            if starts:
                with self.database.write() as tx:
                    for name, phases in starts.items():
                        functions.note_cold_start(tx, project, name, phases)

    def _work_triggers(self, _seen: int) -> float:
        return 0.0 if self._engine.work() else self._engine.seconds_to_next(1.0)

    def _poll_places(self, _seen: int) -> float:
        """Look at the places of triggers; on a cluster the leader does."""
        return self._engine.poll() if self._supervisor.leading else 1.0

    def _hand_on(self, _seen: int) -> float:
        """Hand what happened to sinks and triggers, many at a time: nobody's answer waits for it."""
        handed = fanout.work(self.database, self.matcher)
        self.closing.wait(HAND_ON_S)
        return 0.0 if handed else 1.0

    def _send_letters(self, _seen: int) -> float:
        self.courier.deliver_due()
        return max(HAND_ON_S, self.courier.seconds_to_next(1.0))

    def _keep_drivers(self, _seen: int) -> float:
        """Have the runs that triggers started driven; on a cluster by the leader's process."""
        if self._supervisor.leading:
            self._drivers.keep()
        return 1.0

    def _mint_driver_token(self, project: str) -> str:
        with self.database.write() as tx:
            return tokens.create(tx, project, {"client"}, "the driver of triggered runs")

    # -- what the pool asks for

    def _mint_token(self, project: str, function: str) -> str:
        with self.database.write() as tx:
            return tokens.create(tx, project, {f"worker:{function}"}, f"worker of {function}")

    def _worker_exited(self, project: str, worker: str, folder: Path, reason: str) -> None:
        """Take in what a dead worker had still spooled, then give its attempts to others."""
        left, seen = spool.read_leftover(folder), spool.read_leftover_samples(folder)
        with self.database.write() as tx:
            if left:
                ledger.take(tx, project, left)
            samples.take(tx, project, seen)
            for key in attempts.worker_gone(tx, worker, reason):
                _LOG.info("task %s lost its worker %s: %s", key, worker, reason, extra={"task": key})
        if reason == CLEAN_EXIT:
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that crashed the log is kept
