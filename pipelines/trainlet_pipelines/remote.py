"""The tasks of a run on the training API: created one by one, followed all together with one long poll.

When the API is away it is asked again: the client starts an embedded platform that died anew, and it knows the tasks.
Keys are the run's id and the task's name, so creating a task a second time attaches to the first, and a resumed run
repeats nothing that succeeded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core import wire
from trainlet.core.errors import ConflictError, StepFailed, TrainletError
from trainlet_pipelines.failures import step_failed
from trainlet_pipelines.runner import Call, Outcome

Done = Callable[[Outcome], None]
_Answer = TypeVar("_Answer")
PATIENCE_S = 120.0


class Remote:
    """Runs calls as tasks of the training API, and keeps the dispatcher's lease meanwhile.

    Without a dispatcher nobody in particular waits: the run goes on until it ends or is cancelled. `trace` is where the
    tasks belong in a trace.
    """

    def __init__(
        self,
        client: Client,
        run_id: str,
        dispatcher: wire.DispatcherLease | None,
        on_change: Callable[[wire.TaskView], None] = lambda task: None,
        *,
        trace: str | None = None,
    ) -> None:
        self._client = client
        self._run_id = run_id
        self._dispatcher = dispatcher
        self._on_change = on_change
        self._trace = trace
        self._waiting: dict[str, Done] = {}
        self._seen: dict[str, wire.TaskView] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._canceled = threading.Event()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="create")
        for body in (self._poll, self._renew) if dispatcher is not None else (self._poll,):
            threading.Thread(target=body, name=f"run-{run_id}", daemon=True).start()

    def start(self, call: Call, done: Done) -> None:
        """Create the task; its end comes by the poll."""
        try:
            self._pool.submit(self._create, call, done)
        except RuntimeError:  # closed, so nobody follows any more; or the process ends, which has a reason of its own
            if self._over.is_set():
                done(Outcome("canceled"))

    def settle(self) -> None:
        """Nothing to do."""

    def cancel(self, reason: str) -> None:
        """Ask the API to stop the run after its checkpoints."""
        self._canceled.set()
        self.patient(lambda client: client.cancel_run(self._run_id, reason))

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
            view = self.patient(lambda client: client.put_task(key, body, trace=self._trace))
        except Exception as error:  # noqa: BLE001 - the walking thread waits for an answer, whatever happened
            with self._lock:
                waits = self._waiting.pop(key, None) is not None
            if waits:
                done(self._refused(error))
            return
        self._take(view)

    def _refused(self, error: Exception) -> Outcome:
        """Return how a task ends that could not be created: a cancelled run takes no new ones."""
        if not self._canceled.is_set() and isinstance(error, ConflictError):
            with contextlib.suppress(TrainletError):
                if self._client.get_run(self._run_id).state == "canceled":
                    self._canceled.set()
        return Outcome("canceled") if self._canceled.is_set() else Outcome("failed", error=error)

    def _poll(self) -> None:
        cursor, refused_since = 0, None
        while not self._over.is_set():
            try:
                changes = self._client.changes(self._run_id, cursor, wait_s=20.0)
            except ApiUnreachable:
                self._over.wait(1.0)
                continue
            except TrainletError as error:
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since > PATIENCE_S:
                    self._end_left(Outcome("failed", error=error), everything=True)
                self._over.wait(1.0)
                continue
            if changes.cursor < cursor:  # the database was restored from a backup: what was seen is not so any more
                with self._lock:
                    self._seen.clear()
            cursor, refused_since = changes.cursor, None
            for task in changes.tasks:
                self._take(task)
            if changes.run.state == "canceled":
                self._canceled.set()
                message = f"The run was cancelled: {changes.run.reason}."
                self._end_left(Outcome("canceled", error=StepFailed(message, kind="canceled")))

    def _take(self, task: wire.TaskView) -> None:
        with self._lock:
            before = self._seen.get(task.key)
            if before is not None and before.version > task.version:
                return
            self._seen[task.key] = task
            done = self._waiting.pop(task.key, None) if task.state in wire.TERMINAL else None
        if before is None or before.version < task.version:
            with contextlib.suppress(Exception):  # a listener that fails must not stop the run
                self._on_change(task)
        if done is not None:
            done(outcome_of(task))

    def _end_left(self, outcome: Outcome, *, everything: bool = False) -> None:
        """End the calls whose tasks were never created, or all of them."""
        with self._lock:
            left = [key for key in self._waiting if everything or key not in self._seen]
            calls = [self._waiting.pop(key) for key in left]
        for done in calls:
            done(outcome)

    def _renew(self) -> None:
        assert self._dispatcher is not None
        while not self._over.wait(self._dispatcher.lease_s / 4):
            with contextlib.suppress(TrainletError):
                self._client.renew_dispatcher(self._dispatcher)

    def patient(self, action: Callable[[Client], _Answer], patience_s: float = PATIENCE_S) -> _Answer:
        """Do something at the API, over a restart of it if need be; raises ApiUnreachable when it stays away."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return action(self._client)
            except ApiUnreachable:
                if time.monotonic() > deadline or self._over.is_set():
                    raise
                self._over.wait(1.0)


def outcome_of(task: wire.TaskView) -> Outcome:
    """Return how a terminal task ended."""
    if task.state == "succeeded":
        return Outcome("succeeded", task.output)
    name = task.key.removeprefix(f"{task.run_id}.")
    if task.state == "canceled":
        message = f"{name} was stopped: {task.reason}."
        return Outcome("canceled", error=StepFailed(message, kind="canceled", task=task.key))
    error = task.error or wire.ErrorInfo(kind="platform", message=task.reason)
    return Outcome("failed", error=step_failed(name, error, task.key, task.run_id), info=error)
