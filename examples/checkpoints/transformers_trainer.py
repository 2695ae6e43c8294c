"""Hugging Face's Trainer, killed at any step, goes on where it was: `python transformers_trainer.py`."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import trainlet as tl
from trainlet.integrations.transformers import Checkpoints


class Words(torch.utils.data.Dataset):
    """Made-up sentences of seven words, labeled by whether the first word is an even one."""

    def __init__(self, size: int = 64) -> None:
        self.words = torch.randint(5, 50, (size, 7), generator=torch.Generator().manual_seed(2))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index, 0] % 2}


def train(ck, steps: int) -> dict[str, torch.Tensor]:
    """Train up to a step, from wherever the checkpoint stands; returns the weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, **sizes))
    saves = Checkpoints(ck)
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Words(), callbacks=[saves])
    trainer.train(resume_from_checkpoint=saves.resume())
    return model.state_dict()


@tl.step(checkpoint=tl.Checkpoint(every="1m"))
def training(steps: int, *, ctx: tl.Context = tl.INJECTED) -> float:
    return float(train(ctx.checkpoint, steps)["classifier.bias"][0])


if __name__ == "__main__":
    with tl.checkpoint("transformers-trainer", store="./checkpoints") as checkpoint:
        print(train(checkpoint, 30)["classifier.bias"])
