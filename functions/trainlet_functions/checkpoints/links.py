"""The trainer's end of the line to a saver: on its own thread, or to a sidecar process through a socket.

Both take the same orders and give the same outcomes, so the checkpointer does not know which one it has. Lines of JSON;
what the saver says is read without waiting at each training step.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass
from typing import Any

from trainlet.core import descriptors
from trainlet.core.errors import Fenced, PlatformError, TrainletError
from trainlet_functions.checkpoints.log import State
from trainlet_functions.checkpoints.receipts import Late
from trainlet_functions.checkpoints.savers import GivenUp, Saver
from trainlet_functions.checkpoints.stages import Buffer

ANSWER_S = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an order to commit: `committed` (None for a rank other than 0), or why it failed."""

    sequence: int
    step: int
    error: str | None = None
    superseded: bool = False
    late: bool = False  # another rank did not deliver its part in time
    upload_s: float = 0.0
    bytes_per_s: float = 0.0


class Inline:
    """A saver on the calling thread: an order is done when the call returns."""

    def __init__(self, saver: Saver, buffer: Buffer) -> None:
        self._saver = saver
        self._buffer = buffer
        self._outcomes: list[Outcome] = []

    def acquire(self, *, fresh: bool = False) -> State:
        """Take over the log and return its state."""
        return self._saver.acquire()

    @property
    def epoch(self) -> int:
        """Return the epoch that was acquired."""
        return self._saver.epoch

    def resumed(self, manifest: str) -> None:
        """Tell which checkpoint training goes on from."""
        self._saver.resumed(manifest)

    def commit(self, index: int, sequence: int, step: int, reason: str) -> None:
        """Commit what is staged."""
        staged = self._buffer.read()
        assert staged is not None and staged[0].sequence == sequence
        try:
            self._saver.commit(*staged, reason)
        except (PlatformError, OSError) as error:
            self._outcomes.append(Outcome(sequence, step, error=str(error)))
        else:
            rate = self._saver.bytes_per_s
            self._outcomes.append(Outcome(sequence, step, upload_s=self._saver.upload_s, bytes_per_s=rate))

    def outcomes(self) -> list[Outcome]:
        """Return what was done since the last call."""
        found, self._outcomes = self._outcomes, []
        return found

    def wait(self, sequence: int, timeout_s: float | None = None) -> list[Outcome]:
        """Return the outcomes up to this order's."""
        return self.outcomes()

    def close(self) -> None:
        """Let another writer in, and the memory go."""
        self._saver.close()
        self._buffer.close()


class Line:
    """A sidecar at the other end of a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._buffered = b""
        self._outcomes: list[Outcome] = []
        self._state: State | None = None
        self._epoch: int | None = None
        self._settled = 0

    @property
    def epoch(self) -> int:
        """Return the epoch that was acquired."""
        assert self._epoch is not None
        return self._epoch

    def acquire(self, *, fresh: bool = False) -> State:
        """Take over the log and return its state: as it was then, or with `fresh` as the saver knows it now."""
        if fresh:
            self._state = None
        if self._state is None:
            self._say({"do": "acquire"})
            self._until(lambda: self._state is not None, ANSWER_S, "take over the checkpoints")
            assert self._state is not None
        return self._state

    def resumed(self, manifest: str) -> None:
        """Tell which checkpoint training goes on from."""
        self._say({"do": "resumed", "manifest": manifest})

    def commit(self, index: int, sequence: int, step: int, reason: str) -> None:
        """Have what is staged committed, some time later."""
        self._say({"do": "commit", "index": index, "sequence": sequence, "step": step, "reason": reason})

    def outcomes(self) -> list[Outcome]:
        """Return what was done since the last call; raises Fenced when superseded."""
        self._read(0)
        found, self._outcomes = self._outcomes, []
        return found

    def wait(self, sequence: int, timeout_s: float | None = None) -> list[Outcome]:
        """Return the outcomes up to this order's; raises PlatformError when it takes longer than the timeout."""
        self._until(lambda: self._settled >= sequence, timeout_s, "commit a checkpoint")
        found, self._outcomes = self._outcomes, []
        return found

    def close(self) -> None:
        """Say that nothing more will come, so that what is staged need not be committed for its own sake."""
        with contextlib.suppress(PlatformError):
            self._say({"do": "bye"})
        self._channel.close()

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise PlatformError(
                f"The process that saves checkpoints is gone ({error}); see the worker's log."
            ) from error

    def _until(self, done: Any, timeout_s: float | None, what: str) -> None:
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise PlatformError(f"The saver did not {what} within {timeout_s:g} s; the store may be slow or away.")
            self._read(min(left, 1.0))

    def _read(self, wait_s: float) -> None:
        while descriptors.readable([self._channel], wait_s):
            wait_s = 0
            try:
                data = self._channel.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                raise PlatformError("The process that saves checkpoints has ended; see the worker's log.")
            *lines, self._buffered = (self._buffered + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        match message["is"]:
            case "acquired":
                self._state = State.model_validate(message["state"])
                self._epoch = int(message["epoch"])
            case "fenced":
                raise Fenced(message["message"])
            case "refused":
                raise PlatformError(message["message"])
            case "outcome":
                outcome = Outcome(**message["outcome"])
                self._settled = max(self._settled, outcome.sequence)
                self._outcomes.append(outcome)


def outcome_of(saver: Saver, sequence: int, step: int, error: TrainletError | OSError | None) -> Outcome:
    """Describe how an order ended."""
    if error is None:
        return Outcome(sequence, step, upload_s=saver.upload_s, bytes_per_s=saver.bytes_per_s)
    return Outcome(
        sequence, step, error=str(error), superseded=isinstance(error, GivenUp), late=isinstance(error, Late)
    )
