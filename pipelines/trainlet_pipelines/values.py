"""Two ways to hold the values that flow through a graph: as Python objects, or encoded as they travel.

The runner only asks a `Space` for parts, items and comparisons, so that one walk serves a debugger session and a
cluster run alike.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainlet.core import codecs
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore

Path_ = Sequence[str | int]
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **COMPARISONS,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}


class Space(Protocol):
    """Operations on values of one representation."""

    def constant(self, encoded: Any) -> Any:
        """Return the value of a constant in the graph (JSON)."""
        ...

    def select(self, value: Any, path: Path_) -> Any:
        """Return a part of a value."""
        ...

    def items(self, value: Any) -> list[Any]:
        """Return the elements of a list."""
        ...

    def plain(self, value: Any) -> Any:
        """Return the Python object, for comparisons."""
        ...

    def wrap(self, value: Any) -> Any:
        """Return a Python object in this representation."""
        ...

    def pack(self, value: Any) -> Any:
        """Return a value of this representation as it is handed to a task."""
        ...


class PlainSpace:
    """Values are Python objects."""

    def constant(self, encoded: Any) -> Any:
        """Constants of a trace are plain JSON; a step that changes its argument must not change the graph."""
        return copy.deepcopy(encoded)

    def select(self, value: Any, path: Path_) -> Any:
        """Follow keys, indices and attributes."""
        for part in path:
            try:
                value = getattr(value, part) if isinstance(part, str) and not hasattr(value, "keys") else value[part]
            except (AttributeError, KeyError, IndexError, TypeError) as error:
                raise UserError(f"The result, a {type(value).__name__}, has no part {part!r}.") from error
        return value

    def items(self, value: Any) -> list[Any]:
        """Return the elements of any finite iterable but a string or dict."""
        if isinstance(value, str | bytes | dict):
            raise UserError(f"tl.each needs a list, but got a {type(value).__name__}. Return a list from the step.")
        try:
            return list(value)
        except TypeError as error:
            raise UserError(f"tl.each needs a list, but got a {type(value).__name__}.") from error

    def plain(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def wrap(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def pack(self, value: Any) -> Any:
        """Return the value itself."""
        return value


class EncodedSpace:
    """Values are encoded JSON; files and arrays stay in the store."""

    def __init__(self, store: ObjectStore, workdir: Path) -> None:
        self._store, self._workdir = store, workdir

    def constant(self, encoded: Any) -> Any:
        """Constants are encoded already."""
        return encoded

    def select(self, value: Any, path: Path_) -> Any:
        """Pick a part without decoding the rest."""
        return codecs.select(value, tuple(path), self._store)

    def items(self, value: Any) -> list[Any]:
        """Return the encoded elements."""
        return codecs.items(value, self._store)

    def plain(self, value: Any) -> Any:
        """Decode, for comparisons."""
        return codecs.decode(value, self._store, workdir=self._workdir)

    def wrap(self, value: Any) -> Any:
        """Encode."""
        return codecs.encode(value, self._store)

    def pack(self, value: Any) -> Any:
        """Move a long list that was collected to the store: requests to the API stay small."""
        return codecs.offload(value, self._store)


def compare(name: str, operands: list[Any]) -> bool:
    """Apply an operator of a condition to Python values; raises UserError when they cannot be compared."""
    if name == "truthy":
        return bool(operands[0])
    if name == "not":
        return not operands[0]
    if name == "and":
        return all(operands)
    if name == "or":
        return any(operands)
    try:
        return bool(_OPERATORS[name](operands[0], operands[1]))
    except TypeError as error:
        raise UserError(f"tl.when cannot compare {operands[0]!r} {name} {operands[1]!r}: {error}.") from error
