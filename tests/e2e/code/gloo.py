"""A step whose ranks train one model together, as PyTorch's own examples do."""

import os
import signal

import trainlet as tl


@tl.step(ranks=2, retries=1, checkpoint=tl.Checkpoint(every=0.01), memory="2Gi")
def train(steps: int, dies_at: int, *, ctx: tl.Context = tl.INJECTED) -> dict:
    """Train with DistributedDataParallel; rank 1 of the first attempt is killed in the middle of a step."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ctx.checkpoint.register(model=model, optimizer=optimizer)
    start = ctx.checkpoint.restore()
    first = start.step if start else 0
    for step in range(first + 1, steps + 1):
        samples = torch.randn(6, 4, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        if step == dies_at and ctx.attempt == 1:
            ctx.checkpoint.wait()
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        ctx.checkpoint.step(step)
    together = torch.tensor([float(rank + 1)])
    dist.all_reduce(together)
    dist.destroy_process_group()
    weights = [one.detach().flatten().tolist() for one in model.parameters()]
    return {"world": world, "sum": together.item(), "began": first, "attempt": ctx.attempt, "weights": weights}
