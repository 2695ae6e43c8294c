"""Tasks of a local run, each in a clean process that has nothing but its bundle, its packages and its secrets."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
        with self._pipes(call) as (report_read, report_write, stop_read):
            code = (
                "import sys; from trainlet_functions.child import runner; "
                f"sys.exit(runner.run(sys.stdin.buffer.read(), {report_write}, {stop_read}))"
            )
            command = [python, "-I", "-u", "-c", code]
            passed = (report_write, stop_read)
            lines, output = os.pipe()
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=passed
            ) as process:
                os.close(output)
                printer = threading.Thread(target=self._print, args=(lines, call, order.epoch, masker), daemon=True)
                printer.start()
                os.close(report_write)
                os.close(stop_read)
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(order.model_dump_json().encode())
                    process.stdin.close()
                told = Told(self._say, call.name, order.epoch)
                with os.fdopen(report_read, "rb") as report:
                    last = _last_message(report, told)
                told.end()
            printer.join(LATE_LINES_S)
        return _outcome(call, last, process.returncode)

    def _print(self, lines: int, call: Call, attempt: int, masker: secrets.Masker) -> None:
        """Say what a process prints, to the end of its output, which a process that it left behind may keep open."""
        with os.fdopen(lines, encoding="utf-8", errors="backslashreplace") as output:
            for line in output:
                at = rfc3339(time.time_ns())
                self._say(loglines.shown(at, call.name, masker.mask(line.rstrip("\n")), epoch=attempt))

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
