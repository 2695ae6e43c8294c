"""Where the tasks of a local run go: into this process. `trainlet_pipelines.isolated` gives each a clean one.

Neither needs a training API. What runs on one is `trainlet_pipelines.remote`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlet.core import contexts, hints
from trainlet.core.errors import StopTask
from trainlet.core.gpus import virtual_devices
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import Resources
from trainlet_functions.checkpoints import Checkpointer
from trainlet_pipelines.runner import Call, Outcome
from trainlet_pipelines.telling import Say, Told

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

    So a debugger works, and a traceback is the user's own; with `max_parallel=1` every step runs in the calling thread. A
    step that fails is repeated as often as its retries say, without their delays.
    """

    def __init__(
        self,
        steps: Mapping[str, LocalStep],
        run_id: str,
        store: ObjectStore,
        scratch: Path,
        max_parallel: int | None = None,
        say: Say = print,
    ) -> None:
        self._steps = steps
        self._say = say
        self._most = max_parallel or min(32, (os.cpu_count() or 2) + 4)
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
        if self._ready and self._busy == 0 and 1 in (len(self._ready), self._most):
            call, done = self._ready.pop(0)
            done(self._run(call))
            return
        ready, self._ready = self._ready, []
        if ready and self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="step")
        for call, done in ready:
            assert self._pool is not None
            with self._lock:
                self._busy += 1
            self._pool.submit(self._in_thread, call, done)

    def cancel(self, reason: str) -> None:
        """Tell running steps to stop at their next checkpoint."""
        self._stop = "canceled"

    def close(self) -> None:
        """Let the threads end."""
        self._stop = self._stop or "canceled"
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, call: Call, done: Done) -> None:
        try:
            outcome = self._run(call)
        except BaseException as error:  # noqa: BLE001 - the walking thread waits for an answer, whatever happened
            outcome = Outcome("failed", error=error)
        finally:
            with self._lock:
                self._busy -= 1
        done(outcome)

    def _run(self, call: Call) -> Outcome:
        step = self._steps[call.node.function]
        error: BaseException | None = None
        for attempt in range(1, step.retries + 2):
            if self._stop is not None and not call.final:
                return Outcome("canceled")
            try:
                return Outcome("succeeded", self._call(step, call, attempt))
            except StopTask as stopped:
                return Outcome("canceled", error=stopped)
            except (Exception, SystemExit) as failure:  # noqa: BLE001 - the user's, and goes to the user as it is
                error = failure
        assert error is not None
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next.tb_next or error.__traceback__
        times = f" after {step.retries + 1} attempts" if step.retries else ""
        error.add_note(f"The step {call.name!r} failed{times}.")
        return Outcome("failed", error=error)

    def _call(self, step: LocalStep, call: Call, attempt: int) -> Any:
        told = Told(self._say, call.name, attempt)
        context = self._context(step, call, attempt, told)
        token = contexts.activate(context)
        try:
            wanted = hints.context_parameter(step.function)
            return step.function(**call.inputs, **({wanted: context} if wanted else {}))
        finally:
            contexts.deactivate(token)
            told.end()
            context.checkpoint.close()

    def _context(self, step: LocalStep, call: Call, attempt: int, told: Told) -> contexts.Context:
        task = f"{self._run_id}.{call.name}"
        scratch = self._scratch / call.name / str(attempt)
        scratch.mkdir(parents=True, exist_ok=True)

        def stop() -> str | None:
            return None if call.final else self._stop

        return contexts.Context(
            run_id=self._run_id,
            task=task,
            node=call.node.id,
            function=step.name,
            attempt=attempt,
            artifacts_dir=scratch,
            checkpoint=Checkpointer(self._store, f"runs/{task}", attempt, policy=step.checkpoint, should_stop=stop),
            emit=told.emit,
            stop=stop,
            gpus=virtual_devices(step.resources),
        )
