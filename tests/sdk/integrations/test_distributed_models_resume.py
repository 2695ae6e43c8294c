"""FSDP2, DDP and tensor-parallel models, over gloo: what N processes saved, any number of processes goes on with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.saver_processes import SaverProcess

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Board, verify

torch = pytest.importorskip("torch")

RANK = Path(__file__).with_name("distributed_rank.py")
PREFIX = "runs/r.train"


def run(kind: str, world: int, epoch: int, steps: int, folder: Path) -> list[dict[str, Any]]:
    """Train with that many processes, each with a saver of its own as a worker has them; returns what each ended with."""
    out = folder / str(epoch)
    out.mkdir()
    board = Board.new(world)
    processes: list[subprocess.Popen[bytes]] = []
    savers: list[SaverProcess] = []
    for rank in range(world):
        saver = SaverProcess(
            out / f"report.{rank}",
            board if world > 1 else None,
            store_url=str(folder / "store"),
            prefix=PREFIX,
            epoch=epoch,
            rank=rank,
            world=world,
            policy=CheckpointPolicy(every_s=1e9),
        )
        savers.append(saver)
        numbers = [*map(str, (rank, world, epoch, steps)), str(folder), ",".join(map(str, saver.buffers))]
        command = [sys.executable, str(RANK), kind, *numbers, str(board.descriptor), str(saver.line.fileno())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with (out / f"log.{rank}").open("wb") as log:
            passed = [*saver.buffers, board.descriptor, saver.line.fileno()]
            processes.append(subprocess.Popen(command, pass_fds=passed, env=environment, stdout=log, stderr=log))
        saver.let_go()
    try:
        for rank, process in enumerate(processes):
            assert process.wait(180) == 0, (out / f"log.{rank}").read_text()[-4000:]
        for saver in savers:
            saver.end()
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for saver in savers:
            saver.close()
        os.close(board.descriptor)
    return [torch.load(out / f"final.{rank}", weights_only=True) for rank in range(world)]


def restored(folder: Path, epoch: int, world: int) -> list[dict[str, Any]]:
    return [torch.load(folder / str(epoch) / f"restored.{rank}", weights_only=True) for rank in range(world)]


def same(one: dict[str, Any], other: dict[str, Any], *, exactly: bool = True) -> bool:
    """Say whether two processes know the same: weights, optimizer, step and scale."""
    names = one.keys() - {"order"}
    pairs = [(torch.as_tensor(one[name]), torch.as_tensor(other[name])) for name in names & other.keys()]
    equal = torch.equal if exactly else lambda left, right: torch.allclose(left, right, rtol=1e-4, atol=1e-5)
    return names == other.keys() - {"order"} and all(equal(*pair) for pair in pairs)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("fsdp", 2, 3), ("fsdp", 3, 1), ("fsdp", 2, 2), ("ddp", 1, 2), ("dtensor", 2, 3)],
)
def test_I11_a_distributed_model_goes_on_with_any_number_of_ranks(
    tmp_path: Path, kind: str, before: int, after: int
) -> None:
    ended = run(kind, before, 1, 3, tmp_path)
    assert verify(open_store(str(tmp_path / "store")), PREFIX) == []
    further = run(kind, after, 2, 6, tmp_path)
    for one in restored(tmp_path, 2, after):
        assert one["step"] == 3 and same(one, ended[0]), "every weight and moment is where it was, to the bit"
    sampler = tl.checkpoints.Sampler(48, batch=12, seed=4)
    order = [list(indices) for _ in range(2) for indices in sampler]
    assert ended[0]["order"] + further[0]["order"] == order[:6], "the same samples in the same global order"
    if (kind, before, after) in (("fsdp", 2, 2), ("ddp", 1, 2)):
        (tmp_path / "straight").mkdir()
        straight = run(kind, before, 1, 6, tmp_path / "straight")
        assert same(further[0], straight[0], exactly=before == after)
