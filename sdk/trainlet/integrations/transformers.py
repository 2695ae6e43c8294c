"""Hugging Face's Trainer: it saves through trainlet's checkpoints and resumes as from one of its own folders.

To resume, the checkpoint is written out as such a folder, for the Trainer to load by itself: it alone knows how it skips
data. The Trainer's own saving is then of no use: `save_strategy="no"`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import TrainerState


class Checkpoints(TrainerCallback):  # type: ignore[misc]
    """Saves when it is due, and before the attempt ends.

    ```
    saves = Checkpoints(ctx.checkpoint)
    trainer = Trainer(..., callbacks=[saves])
    trainer.train(resume_from_checkpoint=saves.resume())
    ```
    `metrics` are names from the Trainer's log to pass on, for `on_improve`, such as `eval_loss`.
    """

    def __init__(self, checkpoint: Any, *, metrics: Sequence[str] = (), folder: str | Path | None = None) -> None:
        self._checkpoint = checkpoint
        self._metrics = tuple(metrics)
        self._folder = Path(folder) if folder is not None else None
        self._state = _State()

    def resume(self) -> str | None:
        """Restore, and return what `train(resume_from_checkpoint=...)` takes: None when there is nothing to go on from."""
        self._checkpoint.register(trainer=self._state)
        start = self._checkpoint.restore()
        if start is None:
            return None
        parent = self._folder or Path(tempfile.mkdtemp(prefix="trainlet-"))
        folder = parent / f"checkpoint-{start.step}"
        folder.mkdir(parents=True, exist_ok=True)
        self._state.write(folder)
        return str(folder)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Note that a step is finished."""
        self._state.live = {**kwargs, "state": state}
        last: dict[str, float] = {}
        for entry in state.log_history if self._metrics else ():
            last |= {name: entry[name] for name in self._metrics if name in entry}
        self._checkpoint.step(state.global_step, metrics=last)


class _State:
    """What the Trainer has: from its live objects, and into one of its folders."""

    def __init__(self) -> None:
        from trainlet_functions.checkpoints import RandomStates

        self._random = RandomStates()
        self.live: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        if not self.live:
            return {}
        parts = {"model": "model", "optimizer": "optimizer", "scheduler": "lr_scheduler"}
        found = {name: self.live[key].state_dict() for name, key in parts.items() if self.live.get(key) is not None}
        scaler = getattr(self.live.get("optimizer"), "scaler", None)
        if scaler is not None:
            found["scaler"] = scaler.state_dict()
        state = dataclasses.asdict(self.live["state"])
        return {**found, "random": self._random.state_dict(), "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loaded = state

    def write(self, folder: Path) -> None:
        """Write the folder that the Trainer resumes from, with what was restored."""
        import torch
        from safetensors.torch import save_file

        loaded, self._loaded = self._loaded, {}
        save_file(loaded["model"], folder / "model.safetensors", metadata={"format": "pt"})
        for name in ("optimizer", "scheduler", "scaler"):
            if name in loaded:
                torch.save(loaded[name], folder / f"{name}.pt")
        random = loaded["random"]
        version, words, gauss = random["python"]
        states = {"python": (version, tuple(words), gauss), "numpy": tuple(random["numpy"]), "cpu": random["torch"]}
        if "cuda" in random:
            states["cuda"] = random["cuda"][0] if len(random["cuda"]) == 1 else random["cuda"]
        torch.save(states, folder / "rng_state.pth")
        TrainerState(**loaded["state"]).save_to_json(str(folder / "trainer_state.json"))
