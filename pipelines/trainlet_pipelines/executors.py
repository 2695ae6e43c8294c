"""Where the tasks of a graph run: in this process, in a clean process that has only the bundle, or on the training API."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core import bundles, contexts, hints, wire
from trainlet.core.errors import PlatformError, StepFailed, StopTask, TrainletError
from trainlet.core.gpus import virtual_devices
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import FunctionSpec, Resources
from trainlet_functions.checkpoints import Checkpointer
from trainlet_functions.child.orders import Order
from trainlet_pipelines.runner import Call, Outcome

Done = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class LocalStep:
    """A step for the in-process executor: its function, and what a context and retries need."""

    function: Callable[..., Any]
    name: str
    resources: Resources
    retries: int
    checkpoint: Any


class InProcess:
    """Calls the functions in this process: independent ones at once, a single one right in the calling thread.

    So a debugger works, and a traceback is the user's own.
    """

    def __init__(self, steps: Mapping[str, LocalStep], run_id: str, store: ObjectStore, scratch: Path) -> None:
        self._steps = steps
        self._run_id = run_id
        self._store = store
        self._scratch = scratch
        self._ready: list[tuple[Call, Done]] = []
        self._busy = 0
        self._lock = threading.Lock()
        self._stop: str | None = None
        self._pool: ThreadPoolExecutor | None = None

    def start(self, call: Call, done: Done) -> None:
        """Keep the call until the walking thread settles."""
        self._ready.append((call, done))

    def settle(self) -> None:
        """Run a single call here, several in threads."""
        ready, self._ready = self._ready, []
        if len(ready) == 1 and self._busy == 0:
            call, done = ready[0]
            done(self._run(call))
            return
        if ready and self._pool is None:
            self._pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 2) + 4), thread_name_prefix="step")
        for call, done in ready:
            assert self._pool is not None
            with self._lock:
                self._busy += 1
            self._pool.submit(self._in_thread, call, done)

    def cancel(self, reason: str) -> None:
        """Tell running steps to stop."""
        self._stop = "canceled"

    def close(self) -> None:
        """Let the threads end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, call: Call, done: Done) -> None:
        try:
            outcome = self._run(call)
        finally:
            with self._lock:
                self._busy -= 1
        done(outcome)

    def _run(self, call: Call) -> Outcome:
        step = self._steps[call.node.function]
        error: BaseException | None = None
        for attempt in range(1, step.retries + 2):
            if self._stop is not None:
                return Outcome("canceled")
            try:
                return Outcome("succeeded", self._call(step, call, attempt))
            except StopTask as stopped:
                return Outcome("canceled", error=stopped)
            except Exception as failure:  # noqa: BLE001 - it is the user's, and goes to the user as it is
                error = failure
        if error is not None and error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
        return Outcome("failed", error=error)

    def _call(self, step: LocalStep, call: Call, attempt: int) -> Any:
        context = self._context(step, call, attempt)
        token = contexts.activate(context)
        try:
            wanted = hints.context_parameter(step.function)
            return step.function(**call.inputs, **({wanted: context} if wanted else {}))
        finally:
            contexts.deactivate(token)

    def _context(self, step: LocalStep, call: Call, attempt: int) -> contexts.Context:
        task = f"{self._run_id}.{call.name}"
        return contexts.Context(
            run_id=self._run_id,
            task=task,
            node=call.node.id,
            function=step.name,
            attempt=attempt,
            artifacts_dir=self._scratch / call.name / str(attempt),
            checkpoint=Checkpointer(
                self._store, f"runs/{task}", attempt, policy=step.checkpoint, should_stop=lambda: self._stop
            ),
            emit=lambda kind, fields: None,
            stop=lambda: self._stop,
            gpus=virtual_devices(step.resources),
        )


class Isolated:
    """Runs each call in a clean process that has nothing but the bundle: what works here works on a worker."""

    def __init__(
        self,
        specs: Mapping[str, FunctionSpec],
        code: Mapping[str, bytes],
        run_id: str,
        store: ObjectStore,
        scratch: Path,
    ) -> None:
        self._specs, self._code = specs, code
        self._run_id, self._store, self._scratch = run_id, store, scratch
        self._pool = ThreadPoolExecutor(os.cpu_count() or 2, thread_name_prefix="isolated")
        self._stop = threading.Event()

    def start(self, call: Call, done: Done) -> None:
        """Start the call on a thread that waits for its process."""
        self._pool.submit(lambda: done(self._run(call)))

    def settle(self) -> None:
        """Nothing to do."""

    def cancel(self, reason: str) -> None:
        """Start nothing more."""
        self._stop.set()

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, call: Call) -> Outcome:
        if self._stop.is_set():
            return Outcome("canceled")
        try:
            spec = self._specs[call.node.function]
            folder = self._scratch / "bundles" / spec.bundle
            bundles.extract(self._code[call.node.function], spec.bundle, folder)
            return self._process(call, spec, folder)
        except (TrainletError, OSError) as error:
            return Outcome("failed", error=error)

    def _process(self, call: Call, spec: FunctionSpec, folder: Path) -> Outcome:
        report_read, report_write = os.pipe()
        stop_read, stop_write = os.pipe()
        order = Order(
            run_id=self._run_id,
            task=f"{self._run_id}.{call.name}",
            node=call.node.id,
            epoch=1,
            rank=0,
            spec=spec,
            args=call.inputs,
            devices=virtual_devices(spec.resources),
            bundle_dir=str(folder),
            scratch_dir=str(self._scratch / call.name),
            store_url=self._store.url,
            environment={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        code = (
            "import sys; from trainlet_functions.child import runner; "
            f"sys.exit(runner.run(sys.stdin.buffer.read(), {report_write}, {stop_read}))"
        )
        with subprocess.Popen(
            [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, pass_fds=(report_write, stop_read)
        ) as process:
            os.close(report_write)
            os.close(stop_read)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(order.model_dump_json().encode())
                process.stdin.close()
            with os.fdopen(report_read, "rb") as report:
                messages = [json.loads(line) for line in report]
        os.close(stop_write)
        last = messages[-1] if messages else {"type": "none"}
        if last["type"] == "result":
            return Outcome("succeeded", last["value"])
        if last["type"] == "error":
            return Outcome("failed", error=step_failed(call.name, wire.ErrorInfo.model_validate(last["error"]), ""))
        return Outcome(
            "failed", error=StepFailed(f"{call.name} exited with code {process.returncode} without a result.")
        )


class Remote:
    """Runs calls as tasks of the training API: creates them, and follows all of a run with one long poll.

    When the API is away it is asked for again: an embedded platform that died is started anew and knows the tasks.
    """

    def __init__(
        self,
        client: Client,
        connect: Callable[[], Client],
        run_id: str,
        dispatcher: wire.DispatcherLease,
        on_change: Callable[[wire.TaskView], None] = lambda task: None,
    ) -> None:
        self._connect = connect
        self._client = client
        self._run_id = run_id
        self._dispatcher = dispatcher
        self._on_change = on_change
        self._waiting: dict[str, Done] = {}
        self._seen: dict[str, wire.TaskView] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._canceled = threading.Event()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="create")
        for body in (self._poll, self._renew):
            threading.Thread(target=body, name=f"run-{run_id}", daemon=True).start()

    def start(self, call: Call, done: Done) -> None:
        """Create the task; its end comes by the poll."""
        self._pool.submit(self._create, call, done)

    def settle(self) -> None:
        """Nothing to do."""

    def cancel(self, reason: str) -> None:
        """Ask the API to stop the run after its checkpoints."""
        self._canceled.set()
        self._patient(lambda client: client.cancel_run(self._run_id, reason))

    def close(self) -> None:
        """Stop following."""
        self._over.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _create(self, call: Call, done: Done) -> None:
        key = f"{self._run_id}.{call.name}"
        with self._lock:
            self._waiting[key] = done
        body = wire.TaskCreate(
            run_id=self._run_id,
            node=call.node.id,
            function=call.node.function,
            digest=call.node.digest,
            args=call.inputs,
            dispatcher=self._dispatcher,
        )
        try:
            view = self._patient(lambda client: client.put_task(key, body))
        except TrainletError as error:
            with self._lock:
                self._waiting.pop(key, None)
            done(Outcome("canceled") if self._canceled.is_set() else Outcome("failed", error=error))
            return
        self._take(view)

    def _poll(self) -> None:
        cursor = 0
        while not self._over.is_set():
            try:
                changes = self._client.changes(self._run_id, cursor, wait_s=20.0)
            except ApiUnreachable:
                self._reconnect()
                continue
            except TrainletError:
                self._over.wait(1.0)
                continue
            cursor = changes.cursor
            for task in changes.tasks:
                self._take(task)
            if changes.run.state == "canceled":
                self._canceled.set()
                self._cancel_left(changes.run.reason)

    def _take(self, task: wire.TaskView) -> None:
        with self._lock:
            before = self._seen.get(task.key)
            if before is not None and before.version > task.version:
                return
            self._seen[task.key] = task
            done = self._waiting.pop(task.key, None) if task.state in wire.TERMINAL else None
        if before is None or before.version < task.version:
            self._on_change(task)
        if done is not None:
            done(outcome_of(task))

    def _cancel_left(self, reason: str) -> None:
        """End calls whose tasks were never created: a cancelled run takes no new ones."""
        with self._lock:
            left = [key for key in self._waiting if key not in self._seen]
            calls = [self._waiting.pop(key) for key in left]
        for done in calls:
            done(Outcome("canceled", error=StepFailed(f"The run was cancelled: {reason}.", kind="canceled")))

    def _renew(self) -> None:
        while not self._over.wait(self._dispatcher.lease_s / 4):
            with contextlib.suppress(TrainletError):
                self._client.renew_dispatcher(self._dispatcher)

    def _patient(self, action: Callable[[Client], Any], patience_s: float = 120.0) -> Any:
        """Do something at the API, over a restart of it if need be."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return action(self._client)
            except ApiUnreachable:
                if time.monotonic() > deadline or self._over.is_set():
                    raise
                self._reconnect()

    def _reconnect(self) -> None:
        try:
            self._client = self._connect()
        except PlatformError:
            self._over.wait(1.0)


def outcome_of(task: wire.TaskView) -> Outcome:
    """Return how a terminal task ended."""
    if task.state == "succeeded":
        return Outcome("succeeded", task.output)
    if task.state == "canceled":
        message = f"{task.node} was stopped: {task.reason}."
        return Outcome("canceled", error=StepFailed(message, kind="canceled", task=task.key))
    error = task.error or wire.ErrorInfo(kind="platform", message=task.reason)
    return Outcome("failed", error=step_failed(task.node, error, task.key, task.run_id))


def step_failed(node: str, error: wire.ErrorInfo, task: str, run_id: str = "") -> StepFailed:
    """Build the exception of a failed task: what, where, the remote traceback, and where the logs are."""
    where = f" at {error.where}" if error.where else ""
    kind = f"{error.type}: " if error.type else ""
    text = f"{node} failed{where}: {kind}{error.message}"
    if error.traceback:
        text += f"\n\nRemote {error.traceback.rstrip()}"
    if error.hint:
        text += f"\n{error.hint}"
    if run_id:
        text += f"\nLogs: trainlet logs {run_id}"
    return StepFailed(text, kind=error.kind, traceback=error.traceback, task=task)
