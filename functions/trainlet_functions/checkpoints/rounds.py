"""When the ranks of an attempt save: the same steps on all of them, decided by rank 0, without a rank waiting for another.

Rank 0 orders a save for the first step that no rank has finished, so each rank meets it in its own time. Only with
`on_improve` the other ranks wait, and only until rank 0 has judged the metrics of the same step: a save of the step
after would not be the best one. A rank that misses an order leaves that save without its part; training goes on.
"""

from __future__ import annotations

import time

from trainlet.core.contexts import Emit
from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints.boards import NONE, REASONS, Board
from trainlet_functions.checkpoints.log import Commit

JUDGE_S = 30.0  # how long a rank waits for rank 0 to judge a step, once
PATIENCE_S = 60.0  # how long an order may be unfinished before the next one is given
CHOICE_S = 300.0  # how long a rank waits for rank 0 to restore
POLL_S = 0.0005


class Rounds:
    """One rank's view of what all ranks do. `judged` says that rank 0's metrics decide about saves."""

    def __init__(self, board: Board, rank: int, *, judged: bool, emit: Emit) -> None:
        self._board = board
        self._rank = rank
        self._judged = judged
        self._emit = emit
        self._heard = 0
        self._before = -1
        self._ordered: tuple[int, float] | None = None
        self._restores = 0
        self._abstains = False

    @property
    def leads(self) -> bool:
        """Say whether this is the rank that decides."""
        return self._rank == 0

    def join(self) -> None:
        """Say that this rank has something to save."""
        self._abstains = False
        self._board.join(self._rank)

    def abstain(self) -> None:
        """Say that this rank came without anything to save, so that nobody waits for it."""
        if not self._abstains:
            self._abstains = True
            self._board.abstain(self._rank)

    def staging(self, index: int, step: int | None) -> None:
        """Note what is in a buffer of this rank."""
        self._board.stage(self._rank, index, step)

    # -- saving

    def arrive(self, step: int) -> None:
        """Note that a step is finished; where rank 0 judges steps, it arrives after it has done so (`judge`)."""
        if not (self._judged and self.leads):
            self._board.arrive(self._rank, step)

    def judge(self, step: int) -> None:
        """Have every rank know what is to be done about a step before it looks."""
        if not self._judged:
            return
        if self.leads:
            self._board.arrive(0, step)
            return
        deadline, pause_s = time.monotonic() + JUDGE_S, POLL_S
        while self._board.arrived(0) < step and self._board.stop() is None:
            if time.monotonic() > deadline:
                self._judged = False
                words = f"rank 0 did not come to step {step} within {JUDGE_S:g} s; rank {self._rank} goes on without it"
                self._emit("warning", {"message": words})
                return
            time.sleep(pause_s)
            pause_s = min(0.01, pause_s * 1.2)

    def propose(self, step: int, reason: str) -> bool:
        """As rank 0, have a state saved (without a reason: staged); False while the order before is not done."""
        if reason != "best" and not self._ready():
            return False
        first = step if self._judged else max(step, self._board.front())
        self._board.order(first, reason)
        self._ordered = first, time.monotonic()
        return True

    def due(self, step: int) -> str | None:
        """Return why this step is to be staged ("": just in case), or None."""
        found: str | None = None
        for order in self._board.orders(self._heard):
            if order.step > step:
                break
            self._heard = order.number
            if order.step > self._before:  # else it came too late for this rank
                found = max(found or "", order.reason, key=REASONS.index)
        self._before = step
        return found

    def _ready(self) -> bool:
        """Say whether every rank has staged what was ordered last: so there is always a step that all have."""
        if self._ordered is None or time.monotonic() - self._ordered[1] > PATIENCE_S:
            return True
        step = self._ordered[0]
        return all(
            self._board.arrived(rank) > step or max(self._board.staged(rank), default=-1) >= step
            for rank in range(self._board.world)
            if self._board.joined(rank)
        )

    # -- stopping

    def stops(self, step: int, code: str | None) -> str | None:
        """Return why to stop at this step. A `code` that this rank was told alone is passed on to all."""
        if code is not None and self._board.stop() is None:
            self._board.request_stop(code)
        found = self._board.stop()
        return found[1] if found is not None and step >= found[0] else None

    # -- restoring

    def chosen(self, commit: Commit | None) -> None:
        """As rank 0, tell the others which checkpoint was restored."""
        self._board.choose(commit.digest if commit is not None else None)

    def choice(self) -> int:
        """As another rank, return what rank 0 has restored: NONE, or the beginning of its manifest's hash."""
        deadline, pause_s = time.monotonic() + CHOICE_S, POLL_S
        while (found := self._board.choice(self._restores)) is None:
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"Rank 0 did not restore a checkpoint within {CHOICE_S:g} s. "
                    "Call ctx.checkpoint.restore() on rank 0 too, where another rank calls it."
                )
            time.sleep(pause_s)
            pause_s = min(0.05, pause_s * 1.2)
        self._restores += 1
        return found


def matches(commit: Commit, choice: int) -> bool:
    """Say whether a commit is what rank 0 has chosen."""
    return choice != NONE and int(commit.digest[:15], 16) == choice
