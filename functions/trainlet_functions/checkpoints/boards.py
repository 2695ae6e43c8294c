"""What the ranks of an attempt tell each other without ever waiting in a call: a page of numbers that PID 1 owns.

All ranks must save the same step, and none may need the others for that: a rank can be stuck, stopped or dead. So each
rank notes which step it has reached and which steps it has staged; rank 0 orders a save for a step that nobody has
reached yet, and a stop names a step in the same way. Each number is written by one process, and read with one system
call; a rank that sees no order misses a save, never more.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainlet_functions.checkpoints import stages

REASONS = ("", "periodic", "best")
CODES = ("", "preempted", "budget", "canceled", "dispatcher_lost", "timeout")
RING = 64
CHOICES = 16
LOCK_TRIES = 50
_WORD = struct.Struct("<Q")
_STOP, _WANTED, _ORDERS, _CHOSEN = 0, 16, 32, 40
_RING = 64
_CHOICES = _RING + RING * 16
_RANKS = _CHOICES + CHOICES * 16
_RANK_BYTES = 64
_JOINED, _STEP, _STAGED = 0, 8, 16
ABSTAINS = 1
NONE = (1 << 64) - 1  # rank 0 has looked and found nothing to restore


@dataclass(frozen=True, slots=True)
class Order:
    """Rank 0 wants the first step from `step` on staged, and committed when there is a reason."""

    number: int
    step: int
    reason: str


class Board:
    """The page, as any process of the attempt sees it. Steps are stored plus one: 0 is none."""

    def __init__(self, descriptor: int, world: int) -> None:
        self._descriptor = descriptor
        self.world = world
        size = _RANKS + _RANK_BYTES * world
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)

    @classmethod
    def new(cls, world: int) -> Board:
        """Make the board of an attempt with that many ranks."""
        return cls(stages.anonymous_file(), world)

    @property
    def descriptor(self) -> int:
        """Return the descriptor, to pass on."""
        return self._descriptor

    # -- what each rank says of itself

    def join(self, rank: int) -> None:
        """Note that a rank has something to save."""
        self._write(self._of(rank) + _JOINED, time.monotonic_ns())

    def abstain(self, rank: int) -> None:
        """Note that a rank came without anything to save; it may still join."""
        self._write(self._of(rank) + _JOINED, ABSTAINS)

    def joined(self, rank: int) -> bool:
        """Say whether a rank has something to save."""
        return self._read(self._of(rank) + _JOINED) > ABSTAINS

    def may_join(self, rank: int, within_s: float) -> bool:
        """Say whether a rank that said nothing yet may have something to save: for so long after rank 0 had."""
        first = self._read(self._of(0) + _JOINED)
        said = self._read(self._of(rank) + _JOINED)
        return said == 0 and time.monotonic_ns() - first < within_s * 1e9

    def arrive(self, rank: int, step: int) -> None:
        """Note the step that a rank has finished."""
        self._write(self._of(rank) + _STEP, step + 1)

    def arrived(self, rank: int) -> int:
        """Return the step that a rank has finished, -1 before the first."""
        return self._read(self._of(rank) + _STEP) - 1

    def stage(self, rank: int, index: int, step: int | None) -> None:
        """Note the step that is whole in a buffer of a rank; None while it is being written."""
        self._write(self._of(rank) + _STAGED + 8 * index, 0 if step is None else step + 1)

    def staged(self, rank: int) -> set[int]:
        """Return the steps that are whole in the buffers of a rank."""
        first, second = struct.unpack("<QQ", os.pread(self._descriptor, 16, self._of(rank) + _STAGED))
        return {step - 1 for step in (first, second) if step}

    def common(self) -> int | None:
        """Return the newest step that every rank with something to save has staged whole."""
        ranks = [rank for rank in range(self.world) if self.joined(rank)]
        steps = [self.staged(rank) for rank in ranks]
        return max(set.intersection(*steps), default=None) if steps else None

    def front(self) -> int:
        """Return the first step that nobody has finished yet."""
        return 1 + max(self.arrived(rank) for rank in range(self.world))

    # -- what rank 0 wants of all

    def order(self, step: int, reason: str) -> None:
        """Have the first step from this one on staged by all ranks."""
        number = self._read(_ORDERS)
        place = _RING + number % RING * 16
        os.pwrite(self._descriptor, struct.pack("<QQ", step + 1, REASONS.index(reason)), place)
        self._write(_ORDERS, number + 1)

    def orders(self, after: int) -> Iterator[Order]:
        """Yield the orders behind a number, as far back as they are known."""
        newest = self._read(_ORDERS)
        for number in range(max(after, newest - RING), newest):
            step, reason = struct.unpack("<QQ", os.pread(self._descriptor, 16, _RING + number % RING * 16))
            yield Order(number + 1, step - 1, REASONS[reason])

    def want(self, step: int) -> None:
        """Note the step that rank 0's saver is committing, for savers whose trainers cannot say."""
        self._write(_WANTED, step + 1)

    def wanted(self) -> int | None:
        """Return the step that rank 0's saver is committing."""
        return self._read(_WANTED) - 1 if self._read(_WANTED) else None

    def choose(self, digest: str | None) -> None:
        """Note which checkpoint rank 0 has restored, by the blake3 of its manifest; None: there is none."""
        number = self._read(_CHOSEN)
        value = NONE if digest is None else int(digest[:15], 16)
        self._write(_CHOICES + number % CHOICES * 16, value)
        self._write(_CHOSEN, number + 1)

    def choice(self, number: int) -> int | None:
        """Return what rank 0's restore of that number (from 0) chose: NONE, or 60 bits; None when it is not done."""
        return self._read(_CHOICES + number % CHOICES * 16) if self._read(_CHOSEN) > number else None

    # -- the end

    def request_stop(self, code: str) -> int:
        """Have every rank save and stop at the first step that nobody has finished; returns that step.

        The first caller decides. A rank that finishes that step in the same moment moves it on by one.
        """
        with self._locked():
            known = self.stop()
            if known is not None:
                return known[0]
            step = self.front()
            self._write_stop(step, code)
            while self.front() > step:
                step = self.front()
                self._write_stop(step, code)
            return step

    def stop(self) -> tuple[int, str] | None:
        """Return the step to stop at and why, when there is a stop."""
        step, code = struct.unpack("<QQ", os.pread(self._descriptor, 16, _STOP))
        return (step - 1, CODES[code]) if step else None

    def _write_stop(self, step: int, code: str) -> None:
        os.pwrite(self._descriptor, struct.pack("<QQ", step + 1, CODES.index(code)), _STOP)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        for _ in range(LOCK_TRIES):  # whoever holds it may have been stopped: going on without it is safe enough
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _of(self, rank: int) -> int:
        return _RANKS + _RANK_BYTES * rank

    def _write(self, place: int, value: int) -> None:
        os.pwrite(self._descriptor, _WORD.pack(value), place)

    def _read(self, place: int) -> int:
        return int(_WORD.unpack(os.pread(self._descriptor, 8, place))[0])
