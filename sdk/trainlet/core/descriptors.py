"""Waiting for open files, whatever their numbers: `select.select` fails from 1024 on, which a data loader soon reaches."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Any, TypeVar

_Source = TypeVar("_Source", bound=Any)  # a number, or what has a fileno()


def readable(sources: Iterable[_Source], timeout_s: float | None = None) -> list[_Source]:
    """Return those that can be read, or have ended; waits for the first, at most `timeout_s` seconds."""
    with selectors.PollSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ, source)
        return [key.data for key, _ in selector.select(timeout_s)]
