"""Batches of a stream, for what is read, written or sent many at a time (`itertools.batched` is Python 3.12's)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def batches(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield the items in order, at most `size` together; takes no more from the stream than it yields."""
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch
