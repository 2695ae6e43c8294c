"""The savers of an attempt, seen from PID 1: it owns the memory that children stage into, and the last word on saving.

Whatever becomes of a child, its staged snapshots stay here, and a saver commits the newest complete one: when a stop
comes while the child is stuck in a call or stopped, and when it dies without a word. PID 1 itself never maps the memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from typing import Any

from trainlet.core.errors import PlatformError
from trainlet.core.wire import ClaimReply
from trainlet_functions.checkpoints import boards, sidecars, stages
from trainlet_functions.worker.nurseries import Child, Nursery
from trainlet_functions.worker.reports import Reports

BUFFERS = 2
SPARE_S = 2.0  # what a saver has at least after the children are gone
LIFETIME_S = 3600.0


class Savers:
    """One saver for each rank that registers something to save."""

    def __init__(self, nursery: Nursery, claim: ClaimReply, environment: dict[str, str], reports: Reports) -> None:
        self._nursery = nursery
        self._claim = claim
        self._environment = environment
        self._reports = reports
        self._staging: dict[int, list[int]] = {}  # rank -> buffers, board, and the saver's end of the line
        self._board = boards.Board.new(claim.spec.ranks) if claim.spec.ranks > 1 else None
        self._savers: dict[int, Child] = {}
        self._threads: list[threading.Thread] = []
        self._hurry: dict[str, Any] | None = None
        self._ending = False
        self._lock = threading.Lock()

    def staging(self, rank: int) -> tuple[list[int], int]:
        """Make the buffers of a rank and the line to its saver; returns (all descriptors for the child, its line).

        Of several ranks, the board is behind the buffers.
        """
        buffers = [stages.anonymous_file() for _ in range(BUFFERS)]
        if self._board is not None:
            buffers.append(os.dup(self._board.descriptor))
        ours, theirs = socket.socketpair()
        self._staging[rank] = [*buffers, ours.detach()]
        line = theirs.detach()
        return [*buffers, line], line

    def begin(self, rank: int) -> None:
        """Start the saver of a rank that has something to save."""
        with self._lock:
            if rank in self._savers or rank not in self._staging or self._ending:
                return
            key = self._claim.task.key
            order = sidecars.SaverOrder(
                store_url=self._claim.store_url,
                prefix=f"runs/{key}",
                epoch=self._claim.epoch,
                rank=rank,
                world=self._claim.spec.ranks,
                policy=self._claim.spec.checkpoint,
                environment=self._environment,
            )
            try:
                saver = self._nursery.start_saver(order.model_dump_json(), rank, self._staging[rank])
            except PlatformError as error:
                print(f"no saver for {key}: {error}", file=sys.stderr)
                return
            os.close(self._staging[rank].pop())  # its end of the line: the child shall notice when it is gone
            self._savers[rank] = saver
            thread = threading.Thread(target=self._reports.hear, args=(saver,), daemon=True)
            self._threads.append(thread)
            thread.start()
            if self._hurry is not None:
                _tell(saver, self._hurry)

    def stop(self, code: str) -> None:
        """Have all ranks stop at the same step, which is the first that none of them has finished."""
        if self._board is not None:
            self._board.request_stop(code)

    def hurry(self, reason: str, within_s: float) -> None:
        """Have the newest snapshots committed within this time, whatever the children do."""
        with self._lock:
            self._hurry = {"do": "hurry", "reason": reason, "within_s": within_s}
            for saver in self._savers.values():
                _tell(saver, self._hurry)

    def pids(self) -> set[int]:
        """Return the processes that outlive the children."""
        with self._lock:
            return {saver.pid for saver in self._savers.values()}

    def end(self, reason: str, *, staged: bool, within_s: float | None) -> bool:
        """Wait until everything that was ordered is committed; with `staged`, also the newest that is only staged.

        Returns whether nothing that was staged is left uncommitted. Of several ranks, the first one says when the others
        may end: until then they deliver their parts of what it commits.
        """
        with self._lock:
            self._ending = True
            savers = [self._savers[rank] for rank in sorted(self._savers)]
        limit_s = LIFETIME_S if within_s is None else max(SPARE_S, within_s)
        for saver in savers[1:]:
            _tell(saver, {"do": "hurry", "reason": reason, "within_s": limit_s})
        for saver in savers:
            _tell(saver, {"do": "end", "reason": reason, "staged": staged and saver is savers[0], "within_s": limit_s})
            saver.ended.wait(limit_s + SPARE_S)
        for thread in self._threads:
            thread.join(SPARE_S)
        return bool(savers) and self._reports.saved(savers[0].rank)

    def close(self) -> None:
        """Free the staged memory."""
        for saver in self._savers.values():
            with contextlib.suppress(OSError):
                os.close(saver.stop)
        for descriptors in self._staging.values():
            for one in descriptors:
                os.close(one)
        self._staging.clear()
        if self._board is not None:
            os.close(self._board.descriptor)
            self._board = None


def _tell(saver: Child, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(saver.stop, json.dumps(message).encode() + b"\n")
