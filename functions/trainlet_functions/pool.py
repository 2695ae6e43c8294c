"""The local pool: worker processes of this machine, started on demand, gone when idle.

It is the `FunctionBackend` of the embedded platform. It starts processes and notices their end; what a worker does is
the worker's business. Workers outlive a platform that is killed: they save and stop by themselves, and the pool of the
next platform watches those that still run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainlet.core.settings import Limits
from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet.core.wire import Deployment
from trainlet_functions import foundlings, processes

_LOG = logging.getLogger(__name__)
MARK = "TRAINLET_WORKER_ID"
CLEAN_EXIT = "worker exited"
CLOSE_S = 20.0
FAST_CRASH_S = 3.0


@dataclass(slots=True)
class _Running:
    """A worker process."""

    worker: str
    project: str
    function: str
    folder: Path
    process: subprocess.Popen[bytes] | foundlings.Foundling
    started: float

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(slots=True)
class _Crashes:
    """How often workers of a function ended right after their start."""

    count: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class _Wanted:
    """The stated demand of one function."""

    spec: FunctionSpec
    workers: int
    crashes: _Crashes = field(default_factory=_Crashes)


class LocalPool:
    """Keeps as many workers as are wanted; more are never started, and idle ones leave by themselves."""

    def __init__(
        self,
        *,
        home: Path,
        api_url: str,
        mint_token: Callable[[str, str], str],
        public_key: str,
        store_url: str,
        limits: Limits,
        on_exit: Callable[[str, str, Path, str], None],
    ) -> None:
        self._home = home
        self._api_url = api_url
        self._mint_token = mint_token
        self._public_key = public_key
        self._store_url = store_url
        self._limits = limits
        self._on_exit = on_exit
        self._wanted: dict[tuple[str, str], _Wanted] = {}
        self._tokens: dict[tuple[str, str], str] = {}
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._take_up()
        self._thread = threading.Thread(target=self._keep, name="pool", daemon=True)
        self._thread.start()

    def apply(self, project: str, spec: FunctionSpec) -> None:
        """Nothing to prepare: a process is started when there is work."""

    def watch(self, project: str, watch: Watch) -> None:
        """Nothing to prepare: events come to the API itself, and it has a clock."""

    def keep(
        self,
        functions: Sequence[tuple[str, FunctionSpec]],
        watches: Sequence[tuple[str, Watch]],
        projects: Sequence[str],
    ) -> None:
        """Nothing to keep: processes are all there is."""

    def status(self, project: str, function: str | None = None) -> Mapping[str, Deployment]:
        """Nothing to know: the database knows these workers."""
        return {}

    def pin(self, worker: str, busy: bool) -> None:
        """Nothing to do: the pool never takes a worker away."""

    def demand(self, project: str, spec: FunctionSpec, workers: int) -> None:
        """State how many workers of a function are wanted now."""
        key = (project, spec.name)
        with self._lock:
            known = self._wanted.get(key)
            if known is not None and known.workers == workers and self._alive(key) >= workers:
                return
            self._wanted[key] = _Wanted(spec, workers, known.crashes if known else _Crashes())
        self._wake.put(None)

    def close(self) -> None:
        """Ask every worker to save and stop, and wait for it."""
        self._closing.set()
        self._wake.put(None)
        self._thread.join(timeout=5.0)
        deadline = time.monotonic() + CLOSE_S
        self._signal_all(signal.SIGTERM)
        if not self._all_gone(deadline):
            self._signal_all(signal.SIGKILL)
            self._all_gone(deadline + 5.0)

    def _signal_all(self, number: int) -> None:
        with self._lock:
            for one in self._running.values():
                with contextlib.suppress(OSError):
                    os.kill(one.pid, number)

    def _all_gone(self, deadline: float) -> bool:
        """Wait for the end of every worker; returns whether it came in time."""
        while True:
            with self._lock:
                if not self._running:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)

    def _take_up(self) -> None:
        """Watch the workers of an earlier platform that still run; record the end of those that do not."""
        for found in foundlings.find(self._home / "workers"):
            one = _Running(found.worker, found.project, found.function, found.folder, found, time.monotonic())
            self._running[one.worker] = one
            if found.alive(MARK):
                _LOG.info("worker %s of an earlier platform still runs", one.worker)
                threading.Thread(target=self._wait, args=(one,), name=f"wait-{one.worker}", daemon=True).start()
            else:
                self._wait(one)

    def _alive(self, key: tuple[str, str]) -> int:
        return sum((one.project, one.function) == key for one in self._running.values())

    def _keep(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=0.5)
            now = time.monotonic()
            with self._lock:
                missing = [
                    (key, wanted)
                    for key, wanted in self._wanted.items()
                    for _ in range(wanted.workers - self._alive(key))
                    if wanted.crashes.not_before <= now
                ]
            for key, wanted in missing:
                if self._closing.is_set():
                    return
                try:
                    self._spawn(key[0], wanted.spec)
                except OSError as error:
                    _LOG.warning("a worker of %s could not be started: %s", key[1], error)
                    wanted.crashes.not_before = time.monotonic() + 2.0

    def _spawn(self, project: str, spec: FunctionSpec) -> None:
        worker = f"{spec.name[:40]}-{uuid.uuid4().hex[:8]}"
        folder = self._home / "workers" / worker
        folder.mkdir(parents=True, mode=0o700)
        key = (project, spec.name)
        if key not in self._tokens:
            self._tokens[key] = self._mint_token(project, spec.name)
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if name not in ("TRAINLET_TOKEN", "TRAINLET_DATABASE_URL")
            },
            **{f"TRAINLET_{name.upper()}": str(value) for name, value in self._limits.model_dump().items()},
            "TRAINLET_API": self._api_url,
            "TRAINLET_WORKER_TOKEN": self._tokens[key],
            MARK: worker,
            "TRAINLET_FUNCTION": spec.name,
            "TRAINLET_PROJECT": project,
            "TRAINLET_HOME": str(self._home),
            "TRAINLET_STORE": self._store_url,
            "TRAINLET_PUBLIC_KEY": self._public_key,
            "TRAINLET_WORKER_DIR": str(folder),
            "TRAINLET_PLATFORM_FILE": str(self._home / "platform.json"),
        }
        if spec.packages_lock is None:
            environment["TRAINLET_PRELOAD"] = ",".join(spec.imports)
        with (folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainlet_functions.worker"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd=str(folder),
            )
        foundlings.note(folder, worker, project, spec.name, process.pid)
        one = _Running(worker, project, spec.name, folder, process, time.monotonic())
        with self._lock:
            self._running[worker] = one
        threading.Thread(target=self._wait, args=(one,), name=f"wait-{worker}", daemon=True).start()

    def _wait(self, one: _Running) -> None:
        """Wait for a worker's end, end what it left, and tell."""
        if isinstance(one.process, foundlings.Foundling):
            one.process.wait(MARK)
            status, reason = 0, f"worker {one.worker} of an earlier platform has ended"
        else:
            status = one.process.wait()
            reason = CLEAN_EXIT if status == 0 else f"worker {one.worker} was killed by signal {-status}"
        processes.kill_marked(MARK, one.worker)
        if status > 0:
            reason = f"worker {one.worker} exited with code {status} (see {one.folder / 'worker.log'})"
        if status > 0:
            _LOG.warning("%s", reason)
        try:
            self._on_exit(one.project, one.worker, one.folder, reason)
            foundlings.bury(one.folder)
        except Exception:  # noqa: BLE001 - the pool goes on; the supervisor finds the stale lease
            _LOG.exception("the end of %s could not be recorded; its lease will run out", one.worker)
        crashed = status > 0 and time.monotonic() - one.started < FAST_CRASH_S
        with self._lock:
            del self._running[one.worker]
            wanted = self._wanted.get((one.project, one.function))
            if wanted is not None:
                wanted.crashes.count = wanted.crashes.count + 1 if crashed else 0
                pause_s = min(30.0, 0.5 * 2**wanted.crashes.count) if crashed else 0.0
                wanted.crashes.not_before = time.monotonic() + pause_s
        self._wake.put(None)
