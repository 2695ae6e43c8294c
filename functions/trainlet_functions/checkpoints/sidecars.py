"""The process that saves beside a trainer: it hashes, uploads and commits what the trainer has staged.

It is niced, so that it takes the processor time that training leaves, until a stop is near. Orders come from the trainer
through a socket. The worker, which owns the staged memory, says when to hurry and when to end: from then on the newest
complete snapshot is committed even if the trainer is stuck in a call, stopped, or dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from trainlet.client.stores import open_store
from trainlet.core import descriptors
from trainlet.core.errors import Fenced, PlatformError, TrainletError
from trainlet.core.models import Value
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import links
from trainlet_functions.checkpoints.boards import Board
from trainlet_functions.checkpoints.receipts import Ranks
from trainlet_functions.checkpoints.savers import GivenUp, NotYet, Saver
from trainlet_functions.checkpoints.stages import Buffer

NICE = 10
PATIENCE_S = 0.25  # how long a stop waits for the trainer to come with a newer state
TICK_S = 0.05
AGAIN_S = 0.2
ACQUIRE_EVERY_S = 0.2


class SaverOrder(Value):
    """What a sidecar is for."""

    role: str = "saver"
    store_url: str
    prefix: str
    epoch: int | None
    rank: int = 0
    world: int = 1
    timeout_s: float = 120.0  # how long rank 0 waits for the parts of the others
    join_s: float = 20.0  # how long after rank 0 another rank may register something
    policy: CheckpointPolicy | None = None
    environment: dict[str, str] | None = None
    outlive: bool = False  # nobody but the trainer gives orders: its end is the time to commit what is staged


class Sidecar:
    """Serves one trainer until told to end. `run` returns when nothing is left to commit.

    Of several ranks, the first one decides what is committed when trainers cannot say it: the newest step that all have
    staged. The others deliver their part of it.
    """

    def __init__(
        self,
        order: SaverOrder,
        buffers: list[Buffer],
        channel: socket.socket,
        control: int,
        report: int,
        board: Board | None = None,
    ):
        self._order = order
        self._buffers = buffers
        self._channel = channel
        self._control = control
        self._report = report
        self._lock = threading.Lock()
        self._board = board
        ranks = Ranks(order.rank, order.world)
        if board is not None:
            ranks = Ranks(order.rank, order.world, order.timeout_s, self._takes_part)
        store = open_store(order.store_url)
        self._saver = Saver(store, order.prefix, order.epoch, policy=order.policy, ranks=ranks, emit=self._tell)
        self._sources: dict[int, bytes] = {control: b"", channel.fileno(): b""}
        self._asked: dict[int, tuple[int, int, str]] = {}  # sequence -> (buffer, step, reason)
        self._done_sequence = 0
        self._bye = False
        self._ending = False
        self._staged_too = False
        self._reason = "preempted"
        self._hurry_at = float("inf")
        self._deadline = float("inf")
        self._running: tuple[int, threading.Thread] | None = None
        self._abort = False
        self._fenced = False
        self._not_before = 0.0
        self._settled: set[int] = set()  # steps that this rank has committed, or delivered its part of
        self._acquire_by: float | None = None
        self._acquire_next = 0.0

    def run(self) -> None:
        """Serve orders; for the main thread."""
        while True:
            ready = descriptors.readable(self._sources, TICK_S if self._busy() else 1.0)
            for source in ready:
                self._take(source)
            if self._acquire_by is not None and time.monotonic() >= self._acquire_next:
                self._acquire(self._acquire_by)
            if self._running is not None and not self._running[1].is_alive():
                self._running[1].join()
                self._running = None
            if self._fenced or time.monotonic() > self._deadline:
                break
            if self._running is None and not self._start_next() and self._ending and not self._worth_waiting():
                break
        self._saver.close()
        self._tell("saver_done", {"whole": not self._fenced and self._newest() is None})

    def _busy(self) -> bool:
        waits = self._ending or self._acquire_by is not None or self._hurry_at < float("inf")
        return self._running is not None or waits or bool(self._asked)

    def _takes_part(self, rank: int) -> bool:
        """Say whether a rank has something to save, or may have: in the first save nobody knows yet."""
        assert self._board is not None
        waits = not (self._settled or self._ending or self._hurry_at < float("inf"))
        return self._board.joined(rank) or (waits and self._board.may_join(rank, self._order.join_s))

    # -- orders

    def _take(self, source: int) -> None:
        try:
            data = os.read(source, 1 << 20)
        except OSError:
            data = b""
        if not data:
            del self._sources[source]
            if source == self._control or self._order.outlive:
                self._ending = True  # nobody is left to give orders
                self._staged_too = self._staged_too or not self._bye
                self._reason = "lost"
            return
        *lines, self._sources[source] = (self._sources[source] + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # user code can write into the trainer's end
                self._obey(json.loads(line), from_owner=source == self._control)

    def _obey(self, message: dict[str, Any], *, from_owner: bool) -> None:
        match message["do"]:
            case "acquire":
                self._acquire(time.monotonic() + links.ANSWER_S)
            case "resumed":
                self._saver.resumed(str(message["manifest"]))
            case "commit":
                asked = (int(message["index"]), int(message["step"]), str(message["reason"]))
                if 0 <= asked[0] < len(self._buffers):
                    self._asked[int(message["sequence"])] = asked
                    self._reconsider()
            case "bye":
                self._bye = True
            case "hurry" if from_owner:
                self._reason = str(message["reason"])
                self._hurry_at = min(self._hurry_at, time.monotonic() + PATIENCE_S)
                self._deadline = min(self._deadline, time.monotonic() + float(message["within_s"]))
                _be_important()
                self._reconsider()
            case "end" if from_owner:
                self._ending = True
                self._staged_too = bool(message["staged"])
                self._reason = str(message["reason"])
                self._deadline = time.monotonic() + float(message["within_s"])

    def _acquire(self, until: float) -> None:
        self._acquire_by = None
        try:
            state = self._saver.acquire()
        except NotYet as error:
            if time.monotonic() < until:
                self._acquire_by, self._acquire_next = until, time.monotonic() + ACQUIRE_EVERY_S
            else:
                self._say({"is": "refused", "message": str(error)})
        except Fenced as error:
            self._say({"is": "fenced", "message": str(error)})
        except (TrainletError, OSError) as error:
            self._say({"is": "refused", "message": str(error)})
        else:
            self._say({"is": "acquired", "state": state.model_dump(mode="json"), "epoch": self._saver.epoch})

    # -- committing

    def _reconsider(self) -> None:
        """In a hurry, drop an older snapshot for the newest when that can be uploaded whole in the time that is left."""
        if self._running is None or self._deadline == float("inf"):
            return
        newest = max(self._asked, default=0)
        needs_s = 1.5 * max(self._saver.upload_s, 0.1)
        if newest > self._running[0] and time.monotonic() + needs_s < self._deadline:
            self._abort = True

    def _start_next(self) -> bool:
        """Start to commit the next snapshot that was asked for, or that a stop makes worth it."""
        for sequence in sorted(self._asked):
            index, step, reason = self._asked.pop(sequence)
            if self._buffers[index].peek()[0] == sequence:
                self._start(index, sequence, step, reason)
                return True
            self._settle(links.Outcome(sequence, step, error="overwritten by a newer state", superseded=True))
        due = self._staged_too if self._ending else time.monotonic() >= self._hurry_at
        found = self._newest() if due and time.monotonic() >= self._not_before else None
        if found is None:
            return False
        self._start(*found, self._reason)
        return True

    def _newest(self) -> tuple[int, int, int] | None:
        """Return (buffer, sequence, step) of the newest complete snapshot that is not committed, if there is one."""
        staged = [(*buffer.peek(), index) for index, buffer in enumerate(self._buffers)]
        if self._board is not None:
            wanted = self._board.common() if self._order.rank == 0 else self._board.wanted()
            found = max((one for one in staged if one[0] and one[1] == wanted), default=None)
            behind = self._order.rank == 0 and found is not None and found[1] < max(self._settled, default=0)
            return None if found is None or behind or wanted in self._settled else (found[2], found[0], found[1])
        sequence, step, index = max(staged, default=(0, 0, 0))
        return (index, sequence, step) if sequence > self._done_sequence else None

    def _waits_in_vain(self, step: int) -> bool:
        """Say whether, with the end in sight, other ranks have only an older step.

        While they may still come to this one, that is so only if the older step is not committed yet; at the end they will
        not come any more.
        """
        if self._board is None or self._order.rank != 0 or not (self._ending or time.monotonic() >= self._hurry_at):
            return False
        common = self._board.common()
        if self._ending:
            return common is None or common < step
        return common is not None and common < step and common > max(self._settled, default=-1)

    def _worth_waiting(self) -> bool:
        """Say whether a snapshot that could not be committed yet will be tried again."""
        return self._staged_too and self._deadline < float("inf") and self._newest() is not None

    def _start(self, index: int, sequence: int, step: int, reason: str) -> None:
        self._abort = False
        if self._board is not None and self._order.rank == 0:
            self._board.want(step)
        arguments = (index, sequence, step, reason)
        thread = threading.Thread(target=self._commit, args=arguments, name="commit", daemon=True)
        self._running = sequence, thread
        thread.start()

    def _commit(self, index: int, sequence: int, step: int, reason: str) -> None:
        buffer = self._buffers[index]
        failure: TrainletError | OSError | None = None

        def goes_on() -> None:
            if self._abort:
                raise GivenUp("a newer state is saved instead")
            if buffer.peek()[0] != sequence:
                raise GivenUp("overwritten by a newer state")
            if self._waits_in_vain(step):
                raise GivenUp("another rank does not come to this step; the newest that all have is saved instead")

        try:
            # In a hurry a trainer may be stopped while it holds the lock; the sequence number tells what is whole.
            with buffer.locked(wait=False) as mine:
                staged = buffer.read() if mine or self._deadline < float("inf") else None
                if staged is None or staged[0].sequence != sequence:
                    raise GivenUp("overwritten by a newer state")
                self._saver.commit(*staged, reason, goes_on=goes_on)
        except Fenced as error:
            self._fenced = True
            self._tell("fenced", {"message": str(error)})
            self._say({"is": "fenced", "message": str(error)})
            return
        except (TrainletError, OSError) as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - reported to the trainer; the next snapshot may do better
            failure = PlatformError(f"{type(error).__name__}: {error}")
        if failure is None or (not isinstance(failure, GivenUp) and self._deadline == float("inf")):
            self._done_sequence = max(self._done_sequence, sequence)
            self._settled.add(step)
        elif failure is not None:
            self._not_before = time.monotonic() + AGAIN_S  # with the end in sight it is tried again
        self._settle(links.outcome_of(self._saver, sequence, step, failure))

    def _settle(self, outcome: links.Outcome) -> None:
        fields = {name: getattr(outcome, name) for name in outcome.__slots__}
        self._say({"is": "outcome", "outcome": fields})
        if outcome.error is not None and not outcome.superseded and not self._channel_open():
            self._tell("warning", {"message": f"the checkpoint of step {outcome.step} failed: {outcome.error}"})

    # -- talking

    def _channel_open(self) -> bool:
        return self._channel.fileno() in self._sources

    def _say(self, message: dict[str, Any]) -> None:
        """Tell the trainer; one that does not listen is not waited for."""
        with contextlib.suppress(OSError), self._lock:
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _tell(self, kind: str, fields: dict[str, Any]) -> None:
        """Tell whoever owns this process; of a script that is the person who reads its output."""
        if self._order.outlive and kind == "warning":
            print(f"trainlet: {fields['message']}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError), self._lock:
            os.write(self._report, json.dumps({"type": kind, **fields}).encode() + b"\n")


def _be_important() -> None:
    """Get as much processor time as a trainer that does not stop, where this process may; a priority is each thread's own."""
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def serve(order: SaverOrder, buffers: list[int], channel: int, control: int, report: int) -> None:
    """Be a sidecar in this process until it is over. Of several ranks, the last of the buffers is the board."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the owner decides what a SIGTERM means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    if order.environment is not None:
        os.environ.clear()
        os.environ.update(order.environment)
    end = socket.socket(fileno=channel)
    end.settimeout(5.0)
    board = Board(buffers.pop(), order.world) if order.world > 1 else None
    Sidecar(order, [Buffer(one) for one in buffers], end, control, report, board).run()


def main(arguments: list[str]) -> int:
    """Be a sidecar of a trainer without a worker: `ORDER BUFFER,BUFFER CHANNEL CONTROL REPORT`."""
    order, buffers, channel, control, report = arguments
    descriptors = [int(one) for one in buffers.split(",")]
    os.setsid()  # Ctrl-C is for the trainer
    serve(SaverOrder.model_validate_json(order), descriptors, int(channel), int(control), int(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
