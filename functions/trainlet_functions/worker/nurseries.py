"""The warm process that children come from, seen from PID 1."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainlet.core.errors import PlatformError

if TYPE_CHECKING:  # a worker starts its warm process before it imports anything that takes long
    from trainlet_functions.child.orders import Order

_LOG = logging.getLogger(__name__)
MARK = "TRAINLET_WORKER_ID"
END_S = 5.0
READY_S = 120.0  # importing torch from a cold disk


@dataclass(slots=True, eq=False)
class Child:
    """A forked child: its pid, and the ends of its pipes that PID 1 keeps."""

    pid: int
    rank: int
    stdout: int
    stderr: int
    report: int
    stop: int
    ended: threading.Event = field(default_factory=threading.Event)
    status: int | None = None

    def ask_to_stop(self, code: str) -> None:
        """Tell the child why it must end."""
        with contextlib.suppress(OSError):
            os.write(self.stop, code.encode() + b"\n")

    def kill_group(self) -> None:
        """Kill the child, if it goes on, and what it started."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)


class Nursery:
    """One warm process for one set of imports. It dies with the thread that made it.

    With `isolated`, nothing is imported from the folder it starts in, from PYTHONPATH or from the user's own packages.
    """

    def __init__(
        self, python: str, imports: tuple[str, ...], environment: dict[str, str], *, isolated: bool = False
    ) -> None:
        self.key = (python, imports)
        self._environment = environment
        self._isolated = isolated
        flags = ["-I"] if isolated else []
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, *flags, "-m", "trainlet_functions.child.nursery", str(theirs.fileno()), *imports],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._ready = False
        self._channel = ours
        self._answers: queue.SimpleQueue[dict[str, int]] = queue.SimpleQueue()
        self._children: dict[int, Child] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        threading.Thread(target=self._listen, name="nursery", daemon=True).start()

    def alive(self) -> bool:
        """Say whether the process still runs."""
        return self._process.poll() is None

    def ready_or_plain(self, given_up: Callable[[], bool]) -> Nursery:
        """Wait until everything is imported, and return the process to use.

        A process that dies over its imports is replaced by one without: the same import then fails in the child, where
        the user sees it. Raises PlatformError when that fails too, or when `given_up()` says not to wait any longer.
        """
        try:
            self.wait_ready(given_up)
            return self
        except PlatformError as error:
            died = not self.alive()
            self.close()
            if given_up() or not died or not self.key[1]:
                raise
            _LOG.warning("importing %s in advance failed; going on without (%s)", ", ".join(self.key[1]), error)
        plain = Nursery(self.key[0], (), self._environment, isolated=self._isolated)
        plain.key = self.key
        plain.wait_ready(given_up)
        return plain

    def wait_ready(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until everything is imported; raises PlatformError when the process dies before."""
        if not self._ready:
            self._answer("ready", READY_S, given_up)
            self._ready = True

    def start(self, order: Order, staging: Sequence[int] = ()) -> Child:
        """Fork a child for an order; `staging` are further descriptors for it."""
        stdout_read, stdout_write = os.pipe()
        stderr_read, stderr_write = os.pipe()
        try:
            pid, report, stop = self._fork(order.model_dump_json(), (stdout_write, stderr_write), staging)
        except PlatformError:
            os.close(stdout_read)
            os.close(stderr_read)
            raise
        finally:
            os.close(stdout_write)
            os.close(stderr_write)
        return self._know(Child(pid, order.rank, stdout_read, stderr_read, report, stop))

    def start_joined(self, order: Order) -> Child:
        """Fork a child whose output and errors come through one pipe, in the order they were written: its `stdout`."""
        lines_read, lines_write = os.pipe()
        try:
            pid, report, stop = self._fork(order.model_dump_json(), (lines_write, lines_write), ())
        except PlatformError:
            os.close(lines_read)
            raise
        finally:
            os.close(lines_write)
        return self._know(Child(pid, order.rank, lines_read, -1, report, stop))

    def start_saver(self, order: str, rank: int, staging: Sequence[int]) -> Child:
        """Fork a saver; what it prints goes where this process prints."""
        pid, report, control = self._fork(order, (2, 2), staging)
        return self._know(Child(pid, rank, -1, -1, report, control))

    def _fork(self, order: str, output: tuple[int, int], staging: Sequence[int]) -> tuple[int, int, int]:
        """Have a process forked; returns its pid, the pipe that it reports on, and the one that it is told on."""
        report_read, report_write = os.pipe()
        stop_read, stop_write = os.pipe()
        body = order.encode()
        theirs = [*output, report_write, stop_read, *staging]
        try:
            with self._starting:
                socket.send_fds(self._channel, [len(body).to_bytes(8, "big")], theirs)
                self._channel.sendall(body)
                pid = self._answer("started", 30.0)
        except (OSError, PlatformError) as error:
            os.close(report_read)
            os.close(stop_write)
            raise PlatformError(f"The warm process of the worker is gone: {error}") from error
        finally:
            os.close(report_write)
            os.close(stop_read)
        return pid, report_read, stop_write

    def _know(self, child: Child) -> Child:
        with self._lock:
            self._children[child.pid] = child
            if child.pid in self._early:
                self._ended(child, self._early.pop(child.pid))
        return child

    @classmethod
    def of_worker(cls, worker: str, python: str, imports: tuple[str, ...]) -> Nursery:
        """Start the warm process of a worker, marked as its own and without what only the worker may know."""
        base = {name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")}
        return cls(python, imports, {**base, MARK: worker, "PYTHONUNBUFFERED": "1"})

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._channel.close()
        self._process.kill()
        self._process.wait()

    def _end(self) -> int:
        """Return the status of the process after it has let go of its channel: a moment later it is gone."""
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:  # it hangs on its way out, and nobody can reach it any more
            self._process.kill()
            return self._process.wait()

    def _answer(self, name: str, timeout_s: float, given_up: Callable[[], bool] = lambda: False) -> int:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers.get(timeout=0.1)
                break
            except queue.Empty:
                if given_up() or time.monotonic() > deadline:
                    words = f"The warm process of the worker did not answer within {timeout_s:g} s."
                    raise PlatformError(words) from None
        if name not in answer:
            raise PlatformError(f"The warm process of the worker ended (exit {self._end()}); see worker.log.")
        return int(answer[name])

    def _listen(self) -> None:
        buffered = b""
        while True:
            try:
                data = self._channel.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            buffered += data
            *lines, buffered = buffered.split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        self._answers.put({"gone": 1})
        with self._lock:
            for child in self._children.values():
                self._ended(child, -9)

    def _hear(self, message: dict[str, int]) -> None:
        if "ended" not in message:
            self._answers.put(message)
            return
        with self._lock:
            child = self._children.get(message["ended"])
            if child is None:
                self._early[message["ended"]] = message["status"]
            else:
                self._ended(child, message["status"])

    def _ended(self, child: Child, status: int) -> None:
        if not child.ended.is_set():
            child.status = status
            child.ended.set()
