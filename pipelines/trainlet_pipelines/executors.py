"""Where the tasks of a local run go: into this process, or each into a clean process that has only the bundle.

Neither needs a training API. What runs on one is `trainlet_pipelines.remote`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlet.core import bundles, contexts, hints, loglines, wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import StepFailed, StopTask
from trainlet.core.gpus import virtual_devices
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import FunctionSpec, Resources
from trainlet_functions.checkpoints import Checkpointer
from trainlet_functions.child.orders import Order
from trainlet_pipelines.failures import step_failed
from trainlet_pipelines.runner import Call, Outcome

Done = Callable[[Outcome], None]
LATE_LINES_S = 2.0  # how long the lines of a process that has ended are waited for


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
    ) -> None:
        self._steps = steps
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
        context = self._context(step, call, attempt)
        token = contexts.activate(context)
        try:
            wanted = hints.context_parameter(step.function)
            return step.function(**call.inputs, **({wanted: context} if wanted else {}))
        finally:
            contexts.deactivate(token)

    def _context(self, step: LocalStep, call: Call, attempt: int) -> contexts.Context:
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
            emit=lambda kind, fields: None,
            stop=stop,
            gpus=virtual_devices(step.resources),
        )


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
        max_parallel: int | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._say = say
        self._specs, self._code = specs, code
        self._run_id, self._store, self._scratch = run_id, store, scratch
        self._pool = ThreadPoolExecutor(max_parallel or os.cpu_count() or 2, thread_name_prefix="isolated")
        self._lock = threading.Lock()
        self._stop: str | None = None
        self._stop_pipes: set[int] = set()

    def start(self, call: Call, done: Done) -> None:
        """Start the call on a thread that waits for its process."""
        self._pool.submit(self._in_thread, call, done)

    def settle(self) -> None:
        """Nothing to do."""

    def cancel(self, reason: str) -> None:
        """Start nothing more, and tell what runs to stop at its next checkpoint."""
        with self._lock:
            self._stop = "canceled"
            for pipe in self._stop_pipes:
                os.write(pipe, b"canceled\n")

    def close(self) -> None:
        """Let the threads end."""
        self.cancel("over")
        self._pool.shutdown(wait=False, cancel_futures=True)

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
        outcome = Outcome("canceled")
        for attempt in range(1, spec.retries.times + 2):
            if self._stop is not None and not call.final:
                return Outcome("canceled")
            outcome = self._process(call, self._order(call, spec, folder, attempt))
            if outcome.state != "failed":
                break
        return outcome

    def _order(self, call: Call, spec: FunctionSpec, folder: Path, attempt: int) -> Order:
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
            environment={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )

    def _process(self, call: Call, order: Order) -> Outcome:
        with self._pipes(call) as (report_read, report_write, stop_read):
            code = (
                "import sys; from trainlet_functions.child import runner; "
                f"sys.exit(runner.run(sys.stdin.buffer.read(), {report_write}, {stop_read}))"
            )
            command = [sys.executable, "-I", "-u", "-c", code]
            passed = (report_write, stop_read)
            lines, output = os.pipe()
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=passed
            ) as process:
                os.close(output)
                printer = threading.Thread(target=self._print, args=(lines, call, order.epoch), daemon=True)
                printer.start()
                os.close(report_write)
                os.close(stop_read)
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(order.model_dump_json().encode())
                    process.stdin.close()
                with os.fdopen(report_read, "rb") as report:
                    last = _last_message(report.read())
            printer.join(LATE_LINES_S)
        return _outcome(call, last, process.returncode)

    def _print(self, lines: int, call: Call, attempt: int) -> None:
        """Say what a process prints, to the end of its output, which a process that it left behind may keep open."""
        with os.fdopen(lines, encoding="utf-8", errors="backslashreplace") as output:
            for line in output:
                at = rfc3339(time.time_ns())
                self._say(loglines.shown(at, call.name, line.rstrip("\n"), epoch=attempt))

    @contextlib.contextmanager
    def _pipes(self, call: Call) -> Iterator[tuple[int, int, int]]:
        """Open the report pipe and the stop pipe; `cancel` writes into the latter while this is open."""
        report_read, report_write = os.pipe()
        stop_read, stop_write = os.pipe()
        with self._lock:
            if self._stop is not None and not call.final:
                os.write(stop_write, b"canceled\n")
            if not call.final:
                self._stop_pipes.add(stop_write)
        try:
            yield report_read, report_write, stop_read
        finally:
            with self._lock:
                self._stop_pipes.discard(stop_write)
                os.close(stop_write)


def _last_message(report: bytes) -> dict[str, Any]:
    """Return the last whole message that a child reported; a killed one may leave half a line."""
    for line in reversed(report.splitlines()):
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
    return {}


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
