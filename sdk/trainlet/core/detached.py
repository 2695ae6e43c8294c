"""The context of a step that is called as a plain function: nothing is reported, nothing is saved.

`train(data, 0.1)` in a script or a test has no attempt behind it, yet its body may use `ctx`. It gets this context: the
same methods, with virtual devices, a scratch folder, and a checkpointer that remembers in memory what it was given.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any, Self

from trainlet.core.contexts import Context
from trainlet.core.gpus import virtual_devices
from trainlet.core.specs import Resources


class DetachedCheckpoint:
    """A checkpointer without a store: `restore` finds nothing, saving does nothing."""

    def register(self, **objects: Any) -> Self:
        """Accept the objects that a real checkpointer would save."""
        return self

    def restore(self, *, strict: bool = True, verify: bool = True, at_step: int | None = None) -> None:
        """Return None: there is no earlier attempt."""

    def step(
        self, step: int | None = None, *, metrics: Any = None, epoch: int | None = None, samples: int | None = None
    ) -> None:
        """Do nothing: there is no store to save to, and nobody asks this call to stop."""

    def save(self, step: int | None = None, *, metrics: Any = None, reason: str = "manual") -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Return at once."""


def context(name: str, resources: Resources) -> Context:
    """Make the context of a plain call of the step `name`."""
    logger = logging.getLogger(f"trainlet.step.{name}")
    return Context(
        run_id="plain-call",
        task=f"plain-call.{name}",
        node=name,
        function=name,
        attempt=1,
        artifacts_dir=Path(tempfile.mkdtemp(prefix="trainlet-")),
        checkpoint=DetachedCheckpoint(),
        emit=lambda kind, fields: logger.debug("%s %s", kind, fields),
        stop=lambda: None,
        gpus=virtual_devices(resources),
        logger=logger,
    )
