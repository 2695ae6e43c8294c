"""Lightning's Trainer, killed at any step, goes on where it was: `python lightning_fit.py`."""

import lightning as L  # noqa: N812 - as its own documentation has it
import torch
from torch import nn

import trainlet as tl
from trainlet.integrations.lightning import Checkpoints
from trainlet.integrations.pytorch import Loader


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def training_step(self, batch, index):
        inputs, wanted = batch
        return nn.functional.mse_loss(self.net(inputs), wanted)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=200)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(ck, steps: int) -> dict[str, torch.Tensor]:
    """Train up to a step, from wherever the checkpoint stands; returns the weights."""
    L.seed_everything(0, verbose=False)
    features = torch.randn(200, 8)
    data = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True).sin())
    model = Net()
    saves = Checkpoints(ck)
    trainer = L.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saves],
        plugins=[saves.plugin],
    )
    loader = Loader(data, tl.checkpoints.Sampler(len(data), batch=32, seed=1))
    trainer.fit(model, loader, ckpt_path=saves.resume())
    return model.state_dict()


@tl.step(checkpoint=tl.Checkpoint(every="1m"))
def training(steps: int, *, ctx: tl.Context = tl.INJECTED) -> float:
    return float(train(ctx.checkpoint, steps)["net.4.bias"])


if __name__ == "__main__":
    with tl.checkpoint("lightning-fit", store="./checkpoints") as checkpoint:
        print(train(checkpoint, 50)["net.4.bias"])
