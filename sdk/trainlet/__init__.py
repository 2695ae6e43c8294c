"""trainlet: training steps and pipelines in plain Python, from a laptop to Kubeflow Pipelines and Knative.

This is the public surface; what is not named here is not public. It is for what a notebook imports, and it is lazy:
each name loads its module when it is first used, so that a pod that needs `trainlet.core` pays for nothing else. It
must not import anything outside of the standard library by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from trainlet import billing as billing
    from trainlet import checkpoints as checkpoints
    from trainlet import runs as runs
    from trainlet.checkpoints import checkpoint as checkpoint
    from trainlet.control import each as each
    from trainlet.control import future as future
    from trainlet.control import on_exit as on_exit
    from trainlet.control import run_status as run_status
    from trainlet.control import when as when
    from trainlet.core.artifacts import Artifact as Artifact
    from trainlet.core.artifacts import Dataset as Dataset
    from trainlet.core.artifacts import Model as Model
    from trainlet.core.contexts import Context as Context
    from trainlet.core.contexts import current as _current
    from trainlet.core.errors import AccessError as AccessError
    from trainlet.core.errors import BudgetReached as BudgetReached
    from trainlet.core.errors import Canceled as Canceled
    from trainlet.core.errors import ConflictError as ConflictError
    from trainlet.core.errors import Fenced as Fenced
    from trainlet.core.errors import NotFoundError as NotFoundError
    from trainlet.core.errors import PlatformError as PlatformError
    from trainlet.core.errors import Preempted as Preempted
    from trainlet.core.errors import StepFailed as StepFailed
    from trainlet.core.errors import StopTask as StopTask
    from trainlet.core.errors import TrainletError as TrainletError
    from trainlet.core.errors import UserError as UserError
    from trainlet.futures import Future as Future
    from trainlet.kubeflow import from_kfp as from_kfp
    from trainlet.options import Checkpoint as Checkpoint
    from trainlet.options import Keep as Keep
    from trainlet.options import Retries as Retries
    from trainlet.pipelines import Pipeline as Pipeline
    from trainlet.pipelines import pipeline as pipeline
    from trainlet.runs import Run as Run
    from trainlet.steps import INJECTED as INJECTED
    from trainlet.steps import Step as Step
    from trainlet.steps import step as step
    from trainlet.triggers import on_event as on_event
    from trainlet.triggers import on_schedule as on_schedule

    context = _current

_HOMES = {
    "trainlet.core.artifacts": ("Artifact", "Dataset", "Model"),
    "trainlet.core.contexts": ("Context",),
    "trainlet.core.errors": (
        "AccessError", "BudgetReached", "Canceled", "ConflictError", "Fenced", "NotFoundError", "PlatformError",
        "Preempted", "StepFailed", "StopTask", "TrainletError", "UserError",
    ),
    "trainlet.futures": ("Future",),
    "trainlet.kubeflow": ("from_kfp",),
    "trainlet.options": ("Checkpoint", "Keep", "Retries"),
    "trainlet.control": ("each", "future", "on_exit", "run_status", "when"),
    "trainlet.pipelines": ("Pipeline", "pipeline"),
    "trainlet.runs": ("Run",),
    "trainlet.steps": ("INJECTED", "Step", "step"),
    "trainlet.triggers": ("on_event", "on_schedule"),
}  # fmt: skip
_WHERE: dict[str, tuple[str, str]] = {
    **{name: (module, name) for module, names in _HOMES.items() for name in names},
    "context": ("trainlet.core.contexts", "current"),
    "checkpoint": ("trainlet.checkpoints", "checkpoint"),
    "billing": ("trainlet.billing", ""),
    "checkpoints": ("trainlet.checkpoints", ""),
    "runs": ("trainlet.runs", ""),
}

__all__ = [*_WHERE, "__version__"]


def __getattr__(name: str) -> Any:
    import importlib

    where = _WHERE.get(name)
    if where is None:
        import difflib

        near = difflib.get_close_matches(name, _WHERE, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"module 'trainlet' has no attribute {name!r}.{hint}")
    module = importlib.import_module(where[0])
    value = getattr(module, where[1]) if where[1] else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
