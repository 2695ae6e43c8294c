"""Conditions on the data of an event: a path, and what the value there must be.

`{"$.size": {"ge": 1024, "lt": 2048}, "/status": "firing", "$.kind": ["a", "b"]}`: a plain value must be equal, a list has
the choices, an object has comparisons, all of which must hold. Paths begin at the data, not at the event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers import paths

Condition = Callable[[Any], bool]


def compile(spec: Any, where: str) -> Callable[[Event], bool]:
    """Compile conditions on data; raises UserError that names the path."""
    if not isinstance(spec, Mapping) or not spec:
        raise UserError(f"{where} must map paths into the data to conditions, such as {{'$.size': {{'gt': 0}}}}.")
    both = [(paths.parse(str(path), where), _condition(value, f"{where}[{path!r}]")) for path, value in spec.items()]

    def test(event: Event) -> bool:
        return not event.binary and all(condition(path.find(event.data)) for path, condition in both)

    return test


def _condition(spec: Any, where: str) -> Condition:
    if isinstance(spec, Mapping):
        if not spec:
            raise UserError(f"{where} has no comparison. There are {', '.join(_COMPARISONS)}.")
        inner = [_comparison(str(word), operand, where) for word, operand in spec.items()]
        return lambda found: all(one(found) for one in inner)
    return _comparison("in" if isinstance(spec, list) else "eq", spec, where)


def _comparison(word: str, operand: Any, where: str) -> Condition:
    if word not in _COMPARISONS:
        raise UserError(f"{where}: there is no comparison {word!r}. {nearest(word, list(_COMPARISONS))}")
    kind, holds = _COMPARISONS[word]
    if not isinstance(operand, kind) or (kind == (int, float) and isinstance(operand, bool)):
        raise UserError(f"{where}.{word}: {operand!r} does not fit.")
    if word == "exists":
        return lambda found: (found is not paths.MISSING) is operand

    def condition(found: Any) -> bool:
        if found is paths.MISSING:
            return False
        if kind in ((int, float), str) and not (isinstance(found, kind) and not isinstance(found, bool)):
            return False
        return bool(holds(found, operand))

    return condition


def _same(found: Any, operand: Any) -> bool:
    return (type(found) is type(operand) and found == operand) or (
        _number(found) and _number(operand) and found == operand
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_ANY: Any = object
_COMPARISONS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "eq": (_ANY, _same),
    "ne": (_ANY, lambda found, operand: not _same(found, operand)),
    "in": (list, lambda found, operand: any(_same(found, one) for one in operand)),
    "gt": ((int, float), lambda found, operand: found > operand),
    "ge": ((int, float), lambda found, operand: found >= operand),
    "lt": ((int, float), lambda found, operand: found < operand),
    "le": ((int, float), lambda found, operand: found <= operand),
    "prefix": (str, lambda found, operand: found.startswith(operand)),
    "suffix": (str, lambda found, operand: found.endswith(operand)),
    "exists": (bool, lambda found, operand: True),
}
