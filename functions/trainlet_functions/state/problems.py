"""What the state room refuses, beside the errors that a person sees."""

from __future__ import annotations

from trainlet.core.errors import PlatformError, UserError


class Taken(PlatformError):
    """Raised when a claim loses: the task is taken, finished, or at another epoch."""


class FencedAttempt(PlatformError):
    """Raised when an attempt is not the current one any more."""


class WrongDevices(UserError):
    """Raised when a worker asks for work that its own devices cannot do; `task` is the one that waits for others."""

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class LinesMissing(UserError):
    """Raised when log lines arrive with a gap before them; `expected` is the offset to send from."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"Lines {expected} to {got - 1} are missing; send from offset {expected}.")
        self.expected = expected


class TooManyWaiting(PlatformError):
    """Raised when a queue is full: nothing of the request was stored, and it may be sent again later (HTTP 429)."""
