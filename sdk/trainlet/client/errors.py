"""What a call to the training API may raise, beside the errors that a person can mend."""

from __future__ import annotations

from trainlet.core.errors import PlatformError


class ApiUnreachable(PlatformError):
    """Raised when nobody answers, or the connection breaks; the call may be repeated."""


class ApiFailed(PlatformError):
    """Raised when the API answers with a fault of its own (HTTP 5xx)."""


class TakenError(PlatformError):
    """Raised when a claim loses: the task is taken, finished, or at another epoch."""


class FencedError(PlatformError):
    """Raised when an attempt is no longer the current one: stop at once and write nothing more."""


class ProtocolMismatch(PlatformError):
    """Raised when the API and this trainlet are too far apart to understand each other."""
