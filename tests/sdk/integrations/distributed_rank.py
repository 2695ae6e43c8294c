"""One rank of a training run that really is distributed: a process with gloo, started by the test beside it.

`distributed_rank.py KIND RANK WORLD EPOCH STEPS FOLDER BUFFER,BUFFER BOARD CHANNEL`
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import trainlet as tl
from trainlet.client.stores import open_store
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Board, Buffer, Checkpointer, Line

BATCH = 12  # divides 48 samples, and is divided by 1, 2, 3 and 4 ranks


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False), nn.Tanh(), nn.Linear(3, 1))


def distributed(kind: str, world: int) -> nn.Module:
    """Return the model as this kind spreads it; rows of 7, 3 and 1 leave ranks with unequal parts, and with none."""
    made = model()
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(made)
    from torch.distributed.device_mesh import init_device_mesh

    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        for layer in made:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(made, mesh=mesh)
        return made
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    places = {"0.weight": Shard(1), "0.bias": Replicate(), "2.weight": Shard(0), "4.weight": Shard(1)}
    for name, parameter in list(made.named_parameters()):
        part = nn.Parameter(distribute_tensor(parameter.detach(), mesh, [places.get(name, Replicate())]))
        holder, _, last = name.rpartition(".")
        setattr(made.get_submodule(holder), last, part)
    return made


def whole(value: Any) -> Any:
    """Return a tensor as one process would have it."""
    return value.full_tensor().clone() if hasattr(value, "full_tensor") else value.detach().clone()


def seen(made: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return all weights and all that the optimizer knows, whole."""
    found = {name.removeprefix("module."): whole(value) for name, value in made.state_dict().items()}
    for index, (_, state) in enumerate(sorted(optimizer.state_dict()["state"].items())):
        found |= {f"optimizer.{index}.{name}": whole(value) for name, value in state.items()}
    return found


def train(kind: str, rank: int, world: int, steps: int, ck: Checkpointer, out: Path) -> None:
    made = distributed(kind, world)
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.01, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=2)
    sampler = tl.checkpoints.Sampler(48, batch=BATCH, seed=4)
    ck.register(model=made, optimizer=optimizer, scaler=scaler, data=sampler)
    start = ck.restore()
    first = start.step if start else 0
    if start:
        torch.save({"step": first, "scale": scaler.get_scale(), **seen(made, optimizer)}, out / f"restored.{rank}")
    torch.manual_seed(9)
    inputs = torch.randn(48, 5)
    targets = inputs.prod(1, keepdim=True).tanh()
    step, order = first, []
    while step < steps:
        for indices in sampler:
            order.append(list(indices))
            mine = list(indices)[rank::world] if kind != "dtensor" else list(indices)
            optimizer.zero_grad()
            if kind == "dtensor":  # the gradient of a plain rule: what matters here is where the blocks lie
                for parameter in made.parameters():
                    parameter.grad = parameter.detach() * 0.5
            else:
                loss = nn.functional.mse_loss(made(inputs[mine]), targets[mine])
                scaler.scale(loss).backward()
            if kind == "ddp":
                scaler.step(optimizer)
                scaler.update()
            else:
                for parameter in made.parameters():
                    parameter.grad = parameter.grad / scaler.get_scale() if kind == "fsdp" else parameter.grad
                optimizer.step()
            step += 1
            ck.step(step)
            if step >= steps:
                break
    ck.save(step)
    final = {"step": step, "scale": scaler.get_scale(), **seen(made, optimizer)}
    torch.save(final | {"order": order}, out / f"final.{rank}")
    ck.close()


def main() -> None:
    """Be the rank that the arguments say."""
    kind, *numbers, folder, buffers, board, channel = sys.argv[1:]
    rank, world, epoch, steps = map(int, numbers)
    out = Path(folder) / str(epoch)
    dist.init_process_group("gloo", init_method=f"file://{out}/meet", rank=rank, world_size=world)
    ck = Checkpointer(
        open_store(f"{folder}/store"),
        "runs/r.train",
        epoch,
        policy=CheckpointPolicy(every_s=1e9),
        link=Line(socket.socket(fileno=int(channel))),
        buffers=[Buffer(int(one)) for one in buffers.split(",")],
        rank=rank,
        board=Board(int(board), world) if world > 1 else None,
    )
    train(kind, rank, world, steps, ck, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
