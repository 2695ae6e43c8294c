"""Several ranks as threads, each with a real saver process beside it, as a worker has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.saver_processes import SaverProcess

from trainlet.client.stores import open_store
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Board, Buffer, Checkpointer, Line

PREFIX = "runs/r.train"


class Team:
    """The ranks of one attempt."""

    def __init__(self, folder: Path, world: int, epoch: int, policy: CheckpointPolicy, **order: Any) -> None:
        self.board = Board.new(world)
        self.said: list[tuple[int, str, dict[str, Any]]] = []
        self.ranks: list[Checkpointer] = []
        self._lines: list[Line] = []
        self.savers: list[SaverProcess] = []
        store = str(folder / "store")
        for rank in range(world):
            saver = SaverProcess(
                folder / f"report.{epoch}.{rank}",
                self.board,
                store_url=store,
                prefix=PREFIX,
                epoch=epoch,
                rank=rank,
                world=world,
                policy=policy,
                **order,
            )
            self.savers.append(saver)
            self._lines.append(Line(saver.line))
            made = Checkpointer(
                open_store(store),
                PREFIX,
                epoch,
                policy=policy,
                link=self._lines[-1],
                buffers=[Buffer(one) for one in saver.buffers],
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
        self.savers[rank].tell(message)

    def end(self, *, staged: bool = False) -> None:
        """End as PID 1 does: the first saver first, while the others deliver to it."""
        for saver in self.savers[1:]:
            saver.tell({"do": "hurry", "reason": "lost", "within_s": 60})
        for rank, saver in enumerate(self.savers):
            saver.end(staged=staged and rank == 0)

    def close(self) -> None:
        """Leave no process."""
        for line in self._lines:
            line.close()
        for saver in self.savers:
            saver.close()
