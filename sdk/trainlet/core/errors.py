"""The few errors a person has to learn.

Every message says what happened, where, and what to do next. `TrainletError` is the root; `UserError` is for what the
caller can mend, `PlatformError` for what they cannot. The stop signals derive from `BaseException`, so that a user's
`except Exception` around a training step cannot swallow a preemption.
"""

from __future__ import annotations


class TrainletError(Exception):
    """The root of every error that trainlet raises on purpose."""


class UserError(TrainletError):
    """Raised when the caller can mend it: a wrong option, a value that cannot travel, a failing step."""


class PlatformError(TrainletError):
    """Raised when the platform failed: unreachable API, broken store, protocol mismatch."""


class ConflictError(UserError):
    """Raised when the same key, id or name was used before with other content (HTTP 409)."""


class NotFoundError(UserError):
    """Raised when a run, task, function or checkpoint does not exist in this project (HTTP 404)."""


class AccessError(UserError):
    """Raised when a token is missing, unknown, expired, or not good for this action (HTTP 401, 403)."""


class StepFailed(UserError):
    """Raised when a task failed; carries the remote traceback and where to read its logs."""

    def __init__(self, message: str, *, kind: str = "user", traceback: str = "", task: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback
        self.task = task


class StopTask(BaseException):
    """The root of the signals that end an attempt from outside; never caught by `except Exception`."""


class Preempted(StopTask):
    """Raised inside a step after its checkpoint, when its worker must go; another attempt continues."""


class Canceled(StopTask):
    """Raised inside a step after its checkpoint, when its run was cancelled or nobody waits for it."""


class BudgetReached(StopTask):
    """Raised inside a step after its checkpoint, when the run's budget is spent."""


class Fenced(StopTask):
    """Raised when a newer epoch owns the task: nothing that this attempt writes is seen any more."""
