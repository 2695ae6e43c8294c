"""Lightning: its trainer saves and resumes through trainlet's checkpoints, with everything that Lightning itself keeps.

Lightning's own checkpoint (weights, optimizers, schedulers, loops, callbacks, stateful loaders) is taken through its
plugin for checkpoint files, without a file. Random numbers, which Lightning does not keep, are put back before the first
batch: what Lightning draws while it starts is none of training's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO

from trainlet.core.errors import UserError

PATH = "trainlet-checkpoint"


class Checkpoints(Callback):  # type: ignore[misc]
    """Saves when it is due, and before the attempt ends.

    ```
    saves = Checkpoints(ctx.checkpoint)
    trainer = Trainer(callbacks=[saves], plugins=[saves.plugin], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=saves.resume())
    ```
    `metrics` are names from the trainer's `callback_metrics` to pass on, for `on_improve`.
    """

    def __init__(self, checkpoint: Any, *, metrics: Sequence[str] = ()) -> None:
        self.plugin = _Plugin()
        self._checkpoint = checkpoint
        self._metrics = tuple(metrics)
        self._random = _Later()
        self._resumed = False

    def resume(self) -> str | None:
        """Restore, and return what `fit(ckpt_path=...)` takes: None when there is nothing to go on from."""
        self._checkpoint.register(lightning=self.plugin.state, random=self._random)
        self._resumed = True
        return PATH if self._checkpoint.restore() is not None else None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Know the trainer from now on."""
        if not self._resumed:
            raise UserError("Pass ckpt_path=saves.resume() to fit: it registers what is saved.")
        self.plugin.state.trainer = trainer

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Put the random numbers back before the first batch."""
        self._random.apply()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note that a step is finished."""
        if trainer.global_step == 0:
            return
        found = trainer.callback_metrics
        metrics = {name: float(found[name]) for name in self._metrics if name in found}
        self._checkpoint.step(trainer.global_step, metrics=metrics, epoch=trainer.current_epoch)


class _Later:
    """The random states, put back when it is time."""

    def __init__(self) -> None:
        from trainlet_functions.checkpoints import RandomStates

        self._states = RandomStates()
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return self._states.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loaded = state

    def apply(self) -> None:
        if self._loaded is not None:
            self._states.load_state_dict(self._loaded)
            self._loaded = None


class _State:
    """What Lightning puts into a checkpoint, taken when it is asked for."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.loaded: dict[str, Any] = {}
        self.caught: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        if self.trainer is None:
            return {}
        self.trainer.save_checkpoint(PATH, weights_only=False)
        caught, self.caught = self.caught, {}
        return caught

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state


class _Plugin(TorchCheckpointIO):  # type: ignore[misc]
    """Stands in for checkpoint files: under its own path it hands over and gives back the state itself."""

    def __init__(self) -> None:
        super().__init__()
        self.state = _State()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if str(path) != PATH:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        self.state.caught = checkpoint

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if str(path) != PATH:
            found: dict[str, Any] = super().load_checkpoint(path, *arguments, **options)
            return found
        loaded, self.state.loaded = self.state.loaded, {}
        return loaded
