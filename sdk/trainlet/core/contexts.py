"""What a running step knows about itself: the `ctx` of user code, the same locally, in a worker and under test.

A context talks outward only through two callables, so that it needs neither a network nor a platform: `emit(kind,
fields)` reports metrics and progress, `should_stop()` says why the attempt must end, or None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainlet.core.errors import UserError
from trainlet.core.wire import Device

Emit = Callable[[str, dict[str, Any]], None]
ShouldStop = Callable[[], str | None]

_current: ContextVar[Context | None] = ContextVar("trainlet_context", default=None)


@dataclass(slots=True)
class Context:
    """The running attempt: who it is, which devices it has, where it saves, and whether it must stop.

    `attempt` is the epoch (1, 2, 3 ...); `artifacts_dir` is a scratch folder of this attempt; `checkpoint` is the
    checkpointer (`register`, `restore`, `step`, `save`).
    """

    run_id: str
    task: str
    node: str
    function: str
    attempt: int
    artifacts_dir: Path
    checkpoint: Any
    emit: Emit
    stop: ShouldStop
    gpus: tuple[Device, ...] = ()
    rank: int = 0
    world_size: int = 1
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("trainlet.step"))

    @property
    def should_stop(self) -> bool:
        """Say whether this attempt must end soon; `checkpoint.step` saves and ends it by itself."""
        return self.stop() is not None

    @property
    def stop_reason(self) -> str | None:
        """Return why it must end: `preempted`, `canceled`, `dispatcher_lost`, `budget` or `timeout`."""
        return self.stop()

    def metrics(self, step: int, **values: float) -> None:
        """Report numbers of one training step; raises UserError for a value that is not a finite number."""
        checked: dict[str, float] = {}
        for name, value in values.items():
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise UserError(f"ctx.metrics({name}=...) needs a number, not {type(value).__name__}.") from None
            if number != number or number in (float("inf"), float("-inf")):
                self.logger.warning("metric %s is %s at step %d; it is not recorded", name, number, step)
                continue
            checked[name] = number
        self.emit("metrics", {"step": int(step), "values": checked})

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report how far this attempt is, in the unit of your choice."""
        self.emit("progress", {"done": done, "total": total, "message": message})


def current() -> Context:
    """Return the context of the running step; raises UserError outside of one."""
    context = _current.get()
    if context is None:
        raise UserError("There is no running step here: tl.context() works inside a @tl.step function only.")
    return context


def current_or_none() -> Context | None:
    """Return the context of the running step, or None outside of one."""
    return _current.get()


def activate(context: Context | None) -> Token[Context | None]:
    """Make this the current context; undo with `deactivate`."""
    return _current.set(context)


def deactivate(token: Token[Context | None]) -> None:
    """Restore the context from before `activate`."""
    _current.reset(token)
