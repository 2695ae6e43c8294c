"""How a run ended, as the error that `run.wait()` raises: what happened, where in the person's own files, how to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlet import locations
from trainlet.core import wire
from trainlet.core.errors import StepFailed

if TYPE_CHECKING:
    from trainlet.runs import Run


def error_of(run: Run, view: wire.RunView) -> BaseException:
    """Return what a run that ended without success raises, with what to do next."""
    from trainlet_pipelines.failures import step_failed

    spent = [task for task in run.tasks if task.error is not None and task.error.kind == "budget"]
    if view.state != "succeeded" and spent and spent[0].error is not None:
        told = spent[0].error
        text = f"Run {run.id} was stopped after its checkpoints: {told.message}.\n{told.hint}"
        return StepFailed(text, kind="budget", task=spent[0].key)
    if view.state == "canceled":
        return StepFailed(
            f"Run {run.id} was cancelled: {view.reason}. Continue it with run.resume() or: trainlet resume {run.id}",
            kind="canceled",
        )
    failed = [task for task in run.tasks if task.state == "failed"]
    if failed and failed[0].error is not None:
        task, error = failed[0], _in_own_files(run, failed[0].error, failed[0].digest)
        return step_failed(run.name_of(task), error, task.key, run.id, has_checkpoint=bool(task.checkpoints))
    if isinstance(run._crash, Exception):
        return run._crash
    message = view.error.message if view.error else view.reason
    return StepFailed(f"Run {run.id} failed: {message.rstrip('.')}. Logs: trainlet logs {run.id}")


def _in_own_files(run: Run, error: wire.ErrorInfo, digest: str) -> wire.ErrorInfo:
    """Name the places in the script or notebook, where this process knows them."""
    origins = run._session.origins(digest)
    if origins is None:
        return error
    where, told = origins.where(error.where, locations.place), origins.traceback(error.traceback, locations.frame)
    return error.model_copy(update={"where": where, "traceback": told})
