"""A plain PyTorch loop that can be killed at any step and goes on with the same numbers: `python pytorch_loop.py`."""

import torch
from torch import nn

import trainlet as tl
from trainlet.integrations.pytorch import Loader


def train(ck, steps: int) -> dict[str, torch.Tensor]:
    """Train up to a step, from wherever the checkpoint stands; returns the weights."""
    torch.manual_seed(0)
    features = torch.randn(500, 8)
    data = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=200)
    loader = Loader(data, tl.checkpoints.Sampler(len(data), batch=32, seed=1))
    ck.register(
        model=model, optimizer=optimizer, schedule=schedule, loader=loader, random=tl.checkpoints.RandomStates()
    )
    start = ck.restore()
    step = start.step if start else 0
    while step < steps:
        for inputs, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            ck.step(step, metrics={"loss": loss.item()})
            if step >= steps:
                break
    return model.state_dict()


@tl.step(checkpoint=tl.Checkpoint(every="1m"))
def training(steps: int, *, ctx: tl.Context = tl.INJECTED) -> float:
    return float(train(ctx.checkpoint, steps)["4.bias"])


if __name__ == "__main__":
    with tl.checkpoint("pytorch-loop", store="./checkpoints") as checkpoint:
        print(train(checkpoint, 150)["4.bias"])
