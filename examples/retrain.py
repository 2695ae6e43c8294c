"""Retrain when data arrives: drop a file into a folder, and a run starts; drop it again, and nothing does.

`python examples/retrain.py` plays both in a fresh folder and prints accuracy and cost. The folder is looked at every
second, as a bucket would be. A store that notifies needs no `poll`: wait for "com.amazonaws.s3.objectcreated" of its
bucket instead, and have it post to `trainlet hook create --adapter s3` (docs/events.md).
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

import trainlet as tl
from trainlet.cli import output
from trainlet.client import connect
from trainlet.client.triggers import Triggers
from trainlet.core.settings import Settings
from trainlet.core.triggers import EventView

INCOMING = Path(os.environ.get("RETRAIN_FOLDER") or tempfile.mkdtemp(prefix="retrain-"))


@tl.step(gpu="A100")
def train(files: list[str], epochs: int = 20) -> tl.Model:
    """Train a softmax regression on the images of all files."""
    parts = [np.load(file) for file in files]
    x, y = np.concatenate([part["x"] for part in parts]), np.concatenate([part["y"] for part in parts])
    weights, rng = np.zeros((64, 10)), np.random.default_rng(0)
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(y)), max(1, len(y) // 50)):
            exp = np.exp(x[batch] @ weights - (x[batch] @ weights).max(1, keepdims=True))
            weights -= 0.5 * x[batch].T @ (exp / exp.sum(1, keepdims=True) - np.eye(10)[y[batch]]) / len(batch)
        time.sleep(0.1)  # stands in for a model that takes longer
    model = tl.Model(images=len(y))
    np.save(model.path / "weights.npy", weights)
    return model


@tl.step
def evaluate(model: tl.Model) -> float:
    """Return the accuracy on the digits that no file holds."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return float((((images[1500:] / 16.0) @ np.load(model.path / "weights.npy")).argmax(1) == labels[1500:]).mean())


@tl.on_event(
    "dev.trainlet.object.created",
    source=str(INCOMING),
    poll="1s",
    params={"files": "$.data.path"},
    window="1s",
    max_batch=100,
    concurrency="queue",
    budget="50 USD/day",
)
@tl.pipeline
def retrain(files: list[str]) -> float:
    """Train on the files that came."""
    return evaluate(train(files))


def drop(name: str, first: int, last: int) -> None:
    """Put a file of digits into the folder, as whoever labels them would."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    with (INCOMING / f".{name}").open("wb") as file:
        np.savez(file, x=images[first:last] / 16.0, y=labels[first:last])
    (INCOMING / f".{name}").rename(INCOMING / name)


def main() -> None:
    retrain.deploy()
    api = Triggers(connect(Settings.from_environment()))
    try:
        print(f"== drop a file into {INCOMING}")
        drop("monday.npz", 0, 700)
        follow(api, "monday.npz")
        print("== drop the same file again, and another one")
        drop("monday.npz", 0, 700)
        drop("tuesday.npz", 700, 1400)
        follow(api, "tuesday.npz")
        files = sorted(one.subject for one in mine(api))
        print(f"the events of the folder: {', '.join(files)}")
        if files != ["monday.npz", "tuesday.npz"]:
            raise SystemExit("the same file was an event twice")
    finally:
        api.delete("event", "retrain-created")  # a folder of your own stays watched: leave this out


def follow(api: Triggers, name: str) -> None:
    """Wait for the run that a file starts, and print what came of it."""
    event = wait(lambda: next((one for one in mine(api) if one.subject == name and one.matches), None))
    print(f"event {event.number}: {event.type} {event.subject}")
    match = wait(lambda: next((one for one in api.event(event.number).matches if one.run_id), None))
    run = tl.runs.get(match.run_id)
    accuracy, usage = run.result(), run.usage()
    print(f"{match.trigger} started {run.id}")
    print(f"accuracy {accuracy:.4f}")
    print(f"cost {output.money(usage.cost_nano, usage.currency)} ({usage.gpu_seconds} GPU-seconds)")
    print(f"the trail: trainlet events show {event.number}")


def mine(api: Triggers) -> list[EventView]:
    """Return the events of the folder."""
    return [one for one in api.events(limit=100) if one.source == INCOMING.as_uri()]


def wait(look, patience_s: float = 120.0):
    """Look again until there is something."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SystemExit("nothing came; `trainlet triggers` says why")
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    main()
