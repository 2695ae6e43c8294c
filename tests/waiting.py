"""Waiting for what happens elsewhere: in another process, on another thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def eventually(look: Callable[[], Any], timeout_s: float = 30.0, what: str = "it") -> Any:
    """Look again until there is something, and return it; fail after a while."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:g} s"
        time.sleep(0.01)
    return found
