"""Several ranks as threads, each with a real saver process beside it, as a worker has them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainlet.client.stores import open_store
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Board, Buffer, Checkpointer, Line, sidecars, stages

PREFIX = "runs/r.train"


class Team:
    """The ranks of one attempt."""

    def __init__(self, folder: Path, world: int, epoch: int, policy: CheckpointPolicy, **order: Any) -> None:
        self.board = Board.new(world)
        self.said: list[tuple[int, str, dict[str, Any]]] = []
        self.ranks: list[Checkpointer] = []
        self._lines: list[Line] = []
        self._savers: list[tuple[subprocess.Popen[bytes], int]] = []
        for rank in range(world):
            buffers = [stages.anonymous_file() for _ in range(2)]
            ours, theirs = socket.socketpair()
            control, told = os.pipe()
            report = os.open(folder / f"report.{epoch}.{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
            body = sidecars.SaverOrder(
                store_url=str(folder / "store"),
                prefix=PREFIX,
                epoch=epoch,
                rank=rank,
                world=world,
                policy=policy,
                **order,
            ).model_dump_json()
            passed = [*buffers, self.board.descriptor, theirs.fileno(), control, report]
            command = [sys.executable, "-m", "trainlet_functions.checkpoints.sidecars", body]
            command += [",".join(map(str, passed[:3])), *map(str, passed[3:])]
            process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL)
            theirs.close()
            os.close(control)
            os.close(report)
            self._savers.append((process, told))
            self._lines.append(Line(ours))
            made = Checkpointer(
                open_store(str(folder / "store")),
                PREFIX,
                epoch,
                policy=policy,
                link=self._lines[-1],
                buffers=[Buffer(one) for one in buffers],
                rank=rank,
                board=self.board,
                emit=lambda kind, fields, rank=rank: self.said.append((rank, kind, fields)),  # type: ignore[misc]
            )
            self.ranks.append(made)

    def together(self, work: Callable[[int, Checkpointer], Any]) -> list[Any]:
        """Have each rank do something in a thread of its own; returns what each returned or raised."""
        results: list[Any] = [None] * len(self.ranks)

        def one(rank: int) -> None:
            try:
                results[rank] = work(rank, self.ranks[rank])
            except BaseException as error:  # noqa: BLE001 - handed to the test
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(self.ranks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return results

    def tell(self, rank: int, message: dict[str, Any]) -> None:
        """Tell a rank's saver something, as PID 1 does."""
        os.write(self._savers[rank][1], json.dumps(message).encode() + b"\n")

    def end(self, *, staged: bool = False) -> None:
        """End as PID 1 does: the first saver first, while the others deliver to it."""
        for rank in range(1, len(self._savers)):
            self.tell(rank, {"do": "hurry", "reason": "lost", "within_s": 60})
        for rank, (process, _) in enumerate(self._savers):
            self.tell(rank, {"do": "end", "reason": "lost", "staged": staged and rank == 0, "within_s": 60})
            process.wait(90)

    def close(self) -> None:
        """Leave no process."""
        for line in self._lines:
            line.close()
        for process, told in self._savers:
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                os.close(told)
