"""Train a classifier of handwritten digits: prepare, train with checkpoints, evaluate."""

import time

import numpy as np
from sklearn.datasets import load_digits

import trainlet as tl


@tl.step
def prepare(seed: int = 7) -> tl.Dataset:
    """Shuffle scikit-learn's bundled digits and split them."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    data = tl.Dataset()
    np.savez(data.path / "digits.npz", x=images[order] / 16.0, y=labels[order])
    return data


def softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


@tl.step(gpu="A100", retries=1, checkpoint=tl.Checkpoint(every="1s", on_improve=("accuracy", "max")))
def train(data: tl.Dataset, lr: float, epochs: int = 30, pace: float = 0.1, *, ctx: tl.Context) -> tl.Model:
    """Train a softmax regression by mini-batch gradient descent; a killed worker continues from its checkpoint."""
    with np.load(data.path / "digits.npz") as file:
        x, y = file["x"][:1400], file["y"][:1400]
        x_val, y_val = file["x"][1400:1600], file["y"][1400:1600]
    weights, rng = np.zeros((64, 10)), np.random.default_rng(0)
    ctx.checkpoint.register(weights=weights, rng=rng)
    start = ctx.checkpoint.restore()
    for epoch in range(start.step if start else 0, epochs):
        for batch in np.array_split(rng.permutation(len(y)), 20):
            weights -= lr * x[batch].T @ (softmax(x[batch] @ weights) - np.eye(10)[y[batch]]) / len(batch)
        accuracy = float(((x_val @ weights).argmax(1) == y_val).mean())
        print(f"epoch {epoch + 1}/{epochs} validation accuracy {accuracy:.4f} on {ctx.gpus[0].uuid}", flush=True)
        ctx.metrics(epoch + 1, accuracy=accuracy)
        time.sleep(pace)  # stands in for a model that takes longer
        ctx.checkpoint.step(epoch + 1, metrics={"accuracy": accuracy})
    model = tl.Model(accuracy=accuracy)
    np.save(model.path / "weights.npy", weights)
    return model


@tl.step
def evaluate(data: tl.Dataset, model: tl.Model) -> float:
    """Return the accuracy on the digits that training never saw."""
    with np.load(data.path / "digits.npz") as file:
        x, y = file["x"][1600:], file["y"][1600:]
    return float(((x @ np.load(model.path / "weights.npy")).argmax(1) == y).mean())


@tl.pipeline
def digits(lr: float = 0.5, epochs: int = 30, pace: float = 0.1) -> float:
    data = prepare()
    return evaluate(data, train(data, lr, epochs, pace))
