"""Tasks of a local run, each in a clean process that has nothing but its bundle, its packages and its secrets.

As on a worker, the processes are forked from a warm one that has imported what the bundle imports from elsewhere: one for
each set of imports, for as long as the run goes on. Starting Python anew would cost each task more than most steps take.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainlet.core import bundles, loglines, wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import StepFailed
from trainlet.core.gpus import virtual_devices
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import FunctionSpec
from trainlet_functions import environments, secrets
from trainlet_functions.child.orders import Order
from trainlet_functions.worker.nurseries import Child, Nursery
from trainlet_pipelines.executors import Done
from trainlet_pipelines.failures import step_failed
from trainlet_pipelines.runner import Call, Outcome
from trainlet_pipelines.telling import Say, Told

LATE_LINES_S = 2.0  # how long the lines of a process that has ended are waited for


class Isolated:
    """Runs each call in a clean process that has nothing but the bundle: what works here works on a worker.

    What the processes print goes to `say`, line by line, each with its time and node.
    """

    def __init__(
        self,
        specs: Mapping[str, FunctionSpec],
        code: Mapping[str, bytes],
        run_id: str,
        store: ObjectStore,
        scratch: Path,
        home: Path,
        max_parallel: int | None = None,
        say: Say = print,
    ) -> None:
        self._say = say
        self._home = home
        self._specs, self._code = specs, code
        self._run_id, self._store, self._scratch = run_id, store, scratch
        self._pool = ThreadPoolExecutor(max_parallel or os.cpu_count() or 2, thread_name_prefix="isolated")
        self._lock = threading.Lock()
        self._stop: str | None = None
        self._running: set[Child] = set()
        self._nurseries = _Nurseries()

    def start(self, call: Call, done: Done) -> None:
        """Start the call on a thread that waits for its process."""
        self._pool.submit(self._in_thread, call, done)

    def settle(self) -> None:
        """Nothing to do."""

    def cancel(self, reason: str) -> None:
        """Start nothing more, and tell what runs to stop at its next checkpoint."""
        with self._lock:
            self._stop = "canceled"
            for child in self._running:
                child.ask_to_stop("canceled")

    def close(self) -> None:
        """Let the threads end, and the warm processes with all that was forked from them."""
        self.cancel("over")
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._nurseries.close()

    def _in_thread(self, call: Call, done: Done) -> None:
        try:
            outcome = self._run(call)
        except BaseException as error:  # noqa: BLE001 - the walking thread waits for an answer, whatever happened
            outcome = Outcome("failed", error=error)
        done(outcome)

    def _run(self, call: Call) -> Outcome:
        spec = self._specs[call.node.function].model_copy(update={"ranks": 1})
        folder = self._scratch / "bundles" / spec.bundle
        bundles.extract(self._code[call.node.function], spec.bundle, folder)
        outcome, python = Outcome("canceled"), sys.executable
        if spec.packages_lock is not None:
            python = str(environments.install(self._home, (folder / bundles.LOCK).read_text()))
        values = secrets.environment(self._home, spec.secrets)
        for attempt in range(1, spec.retries.times + 2):
            if self._stop is not None and not call.final:
                return Outcome("canceled")
            order = self._order(call, spec, folder, attempt, values)
            outcome = self._process(call, order, python, secrets.Masker(values.values()))
            if outcome.state != "failed":
                break
        return outcome

    def _order(self, call: Call, spec: FunctionSpec, folder: Path, attempt: int, values: Mapping[str, str]) -> Order:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return Order(
            run_id=self._run_id,
            task=f"{self._run_id}.{call.name}",
            node=call.node.id,
            epoch=attempt,
            rank=0,
            spec=spec,
            args=call.inputs,
            devices=virtual_devices(spec.resources),
            bundle_dir=str(folder),
            scratch_dir=str(self._scratch / call.name / str(attempt)),
            store_url=self._store.url,
            environment={**ours, **values},
        )

    def _process(self, call: Call, order: Order, python: str, masker: secrets.Masker) -> Outcome:
        nursery = self._nurseries.warm(python, order.spec.imports)
        with self._child(call, nursery.start_joined(order)) as child:
            printer = threading.Thread(
                target=self._print, args=(child.stdout, call, order.epoch, masker), name="isolated-lines", daemon=True
            )
            printer.start()
            ending = threading.Thread(target=_end_group, args=(child,), name="isolated-end", daemon=True)
            ending.start()
            told = Told(self._say, call.name, order.epoch)
            with os.fdopen(child.report, "rb") as report:
                last = _last_message(report, told)
            told.end()
            ending.join()
            printer.join(LATE_LINES_S)
        assert child.status is not None
        return _outcome(call, last, child.status)

    def _print(self, lines: int, call: Call, attempt: int, masker: secrets.Masker) -> None:
        """Say what a process prints, to the end of its output, which a process that it left behind may keep open."""
        with os.fdopen(lines, encoding="utf-8", errors="backslashreplace") as output:
            for line in output:
                at = rfc3339(time.time_ns())
                self._say(loglines.shown(at, call.name, masker.mask(line.rstrip("\n")), epoch=attempt))

    @contextlib.contextmanager
    def _child(self, call: Call, child: Child) -> Iterator[Child]:
        """Let `cancel` reach the process while this is open; what is there for the end of a run is not canceled."""
        with self._lock:
            if not call.final:
                self._running.add(child)
                if self._stop is not None:
                    child.ask_to_stop("canceled")
        try:
            yield child
        finally:
            with self._lock:
                self._running.discard(child)
                os.close(child.stop)


class _Nurseries:
    """The warm processes of a run. Each dies with the thread that made it, so threads of their own make them."""

    def __init__(self) -> None:
        self._makers = ThreadPoolExecutor(32, thread_name_prefix="nurseries")
        self._made: dict[tuple[str, tuple[str, ...]], Future[Nursery]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def warm(self, python: str, imports: tuple[str, ...]) -> Nursery:
        """Return the warm process with these imports, started when there is none or when it has died."""
        key = (python, imports)
        with self._lock:
            made = self._made.get(key)
            if made is None or (made.done() and not _is_alive(made)):
                made = self._made[key] = self._makers.submit(self._make, python, imports)
        return made.result()

    def _make(self, python: str, imports: tuple[str, ...]) -> Nursery:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return Nursery(python, imports, clean, isolated=True).ready_or_plain(self._closed.is_set)

    def close(self) -> None:
        """End them all, also those that are about to be ready."""
        self._closed.set()
        self._makers.shutdown(cancel_futures=True)
        with self._lock:
            made = list(self._made.values())
        for one in made:
            if not one.cancelled() and one.exception() is None:
                one.result().close()


def _is_alive(made: Future[Nursery]) -> bool:
    if made.exception() is not None:
        return False
    if not made.result().alive():
        made.result().close()
        return False
    return True


def _end_group(child: Child) -> None:
    """Wait for the end of a process, and kill what it started and left behind."""
    child.ended.wait()
    child.kill_group()


def _last_message(report: Iterable[bytes], told: Told) -> dict[str, Any]:
    """Tell what a child reports as it comes, and return its last whole message; a killed one may leave half a line."""
    last: dict[str, Any] = {}
    for line in report:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                last = message
                told.emit(str(message.get("type")), message)
    return last


def _outcome(call: Call, message: dict[str, Any], exit_code: int) -> Outcome:
    match message.get("type"):
        case "result":
            return Outcome("succeeded", message["value"])
        case "stopped":
            return Outcome("canceled", error=StepFailed(f"{call.name} was stopped.", kind="canceled"))
        case "error":
            info = wire.ErrorInfo.model_validate(message["error"])
            return Outcome("failed", error=step_failed(call.name, info, ""), info=info)
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    return Outcome("failed", error=StepFailed(f"{call.name}: its process {how} without a result."))
