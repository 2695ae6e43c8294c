"""How a failure is told: as the exception that a caller sees, and as the record that a run keeps."""

from __future__ import annotations

from trainlet.core import wire
from trainlet.core.errors import StepFailed, TrainletError, UserError


def step_failed(
    node: str, error: wire.ErrorInfo, task: str, run_id: str = "", *, has_checkpoint: bool = False
) -> StepFailed:
    """Build the exception of a failed task: what, where, the remote traceback, where the logs are, and how to go on."""
    where = f" at {error.where}" if error.where else ""
    kind = f"{error.type}: " if error.type else ""
    text = f"{node} failed{where}: {kind}{error.message}"
    if error.traceback:
        head = "Remote " if error.traceback.startswith("Traceback") else "Remote, the first cause first:\n"
        text += f"\n\n{head}{error.traceback.rstrip()}"
    if error.hint:
        text += f"\n{error.hint}"
    if run_id:
        text += f"\nLogs: trainlet logs {run_id}"
    if run_id and has_checkpoint:
        text += f"\nContinue after its last checkpoint: trainlet resume {run_id}"
    return StepFailed(text, kind=error.kind, traceback=error.traceback, task=task)


def error_info(error: BaseException) -> wire.ErrorInfo:
    """Describe an exception in one line, as the record of a run keeps it; a StepFailed brings its remote traceback."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        text = ""
    message = (text.splitlines() or [type(error).__name__])[0][:2000]
    if isinstance(error, StepFailed):
        return wire.ErrorInfo.model_validate(
            {"kind": error.kind, "type": type(error).__name__, "message": message, "traceback": error.traceback}
        )
    users = isinstance(error, UserError) or not isinstance(error, TrainletError)
    return wire.ErrorInfo(kind="user" if users else "platform", type=type(error).__name__, message=message)
