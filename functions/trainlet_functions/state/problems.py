"""What the state room refuses, beside the errors that a person sees."""

from __future__ import annotations

from trainlet.core.errors import PlatformError


class Taken(PlatformError):
    """Raised when a claim loses: the task is taken, finished, or at another epoch."""


class FencedAttempt(PlatformError):
    """Raised when an attempt is not the current one any more."""
