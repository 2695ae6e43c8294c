"""scikit-learn's partial_fit, killed at any step, goes on where it was: `python sklearn_partial_fit.py`."""

import numpy as np
from sklearn.linear_model import SGDClassifier

import trainlet as tl


def train(ck, steps: int) -> dict[str, np.ndarray]:
    """Train up to a step, from wherever the checkpoint stands; returns the weights."""
    inputs = np.random.default_rng(0).normal(size=(300, 5))
    labels = (inputs.sum(axis=1) > 0).astype(int)
    model = SGDClassifier(random_state=1)
    noise = np.random.default_rng(2)
    sampler = tl.checkpoints.Sampler(len(inputs), batch=20, seed=3)
    ck.register(model=tl.checkpoints.Attributes(model), sampler=sampler, noise=noise)
    start = ck.restore()
    step = start.step if start else 0
    while step < steps:
        for indices in sampler:
            batch = inputs[indices] + noise.normal(scale=0.1, size=(len(indices), 5))
            model.partial_fit(batch, labels[indices], classes=[0, 1])
            step += 1
            ck.step(step)
            if step >= steps:
                break
    return {"coef": model.coef_, "intercept": model.intercept_}


@tl.step(checkpoint=tl.Checkpoint(every="1m"))
def training(steps: int, *, ctx: tl.Context = tl.INJECTED) -> float:
    return float(train(ctx.checkpoint, steps)["intercept"][0])


if __name__ == "__main__":
    with tl.checkpoint("sklearn-partial-fit", store="./checkpoints") as checkpoint:
        print(train(checkpoint, 40)["intercept"])
