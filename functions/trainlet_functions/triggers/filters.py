"""Filters of subscriptions: Knative Eventing's dialects with Eventing's meaning, and conditions on the data on top.

A filter is a list of dialects, all of which must hold: `exact`, `prefix`, `suffix`, `all`, `any`, `not`, `cesql`, as in a
Trigger, so that a broker can be given the same list. `data` is trainlet's own: it maps JSONPaths or JSON Pointers to
conditions, which no broker can see. What Eventing would skip in silence (an empty dialect, an empty value, an unknown
function) is an error here, because it is never what was meant.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers import cesql, conditions
from trainlet_functions.triggers.cesql import casts

Test = Callable[[Event], bool]
Key = tuple[str | None, str | None]
DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not", "cesql", "data")
_ATTRIBUTE = re.compile(r"[a-z][a-z0-9]*")  # as Eventing's webhook has it
_MAX_DEPTH = 20
_MOST_KEYS = 64  # a filter with more places in the index is asked about every event instead


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled filter."""

    dialects: tuple[Mapping[str, Any], ...]
    _tests: tuple[Test, ...]
    _keys: tuple[Key, ...] | None

    def matches(self, event: Event) -> bool:
        """Say whether an event passes."""
        return all(test(event) for test in self._tests)

    def index_keys(self) -> list[Key] | None:
        """Return the only exact (type, source) with which it can pass, None in a pair for any; None: all must be asked."""
        return None if self._keys is None else list(self._keys)

    def to_knative(self) -> list[dict[str, Any]]:
        """Return `spec.filters` of a Trigger: what a broker may leave out; what it lets pass must still be asked here."""
        return [found for found in (_without_data(one) for one in self.dialects) if found is not None]


def compile(specs: Sequence[Mapping[str, Any]]) -> Filter:
    """Compile a list of dialects; raises UserError that names the place in the list."""
    if not specs:
        raise UserError("A filter needs at least one dialect, such as {'exact': {'type': 'com.example.created'}}.")
    tests = tuple(_test(spec, f"filters[{index}]", 0) for index, spec in enumerate(specs))
    both = [_allowed({"all": list(specs)}, name) for name in ("type", "source")]
    types, sources = ([None] if one is None else sorted(one) for one in both)
    keys: tuple[Key, ...] | None = tuple(itertools.product(types, sources))
    if both == [None, None] or len(keys or ()) > _MOST_KEYS:
        keys = None
    return Filter(tuple(specs), tests, keys)


def _test(spec: Any, where: str, depth: int) -> Test:
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise UserError(f"{where} must be an object with one dialect of {', '.join(DIALECTS)}.")
    if depth > _MAX_DEPTH:
        raise UserError(f"{where} is nested more than {_MAX_DEPTH} deep.")
    ((dialect, value),) = spec.items()
    where = f"{where}.{dialect}"
    if dialect in _COMPARE:
        return _attributes(value, where, _COMPARE[dialect])
    if dialect in ("all", "any"):
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise UserError(f"{where} must be a list of filters, with at least one.")
        inner = [_test(one, f"{where}[{index}]", depth + 1) for index, one in enumerate(value)]
        return _all(inner) if dialect == "all" else _any(inner)
    if dialect == "not":
        return _not(_test(value, where, depth + 1))
    if dialect == "cesql":
        return _expression(value, where)
    if dialect == "data":
        return conditions.compile(value, where)
    raise UserError(f"{where}: there is no such dialect. {nearest(str(dialect), list(DIALECTS))}")


_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}


def _attributes(value: Any, where: str, compare: Callable[[str, str], bool]) -> Test:
    if not isinstance(value, Mapping) or not value:
        raise UserError(f"{where} must map attributes to texts, such as {{'type': 'com.example.created'}}.")
    for name, text in value.items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name):
            raise UserError(f"{where}: {name!r} is no attribute; those are of a-z and 0-9, a letter first.")
        if name == "data":
            raise UserError(f"{where}: brokers cannot look into data. Use {{'data': {{'$.path': ...}}}}.")
        if not isinstance(text, str) or not text:
            raise UserError(f"{where}.{name} must be a text that is not empty.")
    wanted = tuple(value.items())

    def test(event: Event) -> bool:
        for name, text in wanted:
            found = event.attributes.get(name)
            if found is None or not compare(casts.string(found), text):
                return False
        return True

    return test


def _all(inner: list[Test]) -> Test:
    return lambda event: all(test(event) for test in inner)


def _any(inner: list[Test]) -> Test:
    return lambda event: any(test(event) for test in inner)


def _not(inner: Test) -> Test:
    return lambda event: not inner(event)


def _expression(value: Any, where: str) -> Test:
    expression = _parsed(value, where)
    unknown = expression.unknown_functions()
    if unknown:
        raise UserError(f"{where}: there is no function {', '.join(unknown)} (name/number of arguments).")
    if expression.root.kind not in ("Boolean", "Any"):
        raise UserError(f"{where} gives a value of type {expression.root.kind}, and never true or false. Compare it.")
    return lambda event: expression.matches(event.attributes)


def _parsed(value: Any, where: str) -> cesql.Expression:
    if not isinstance(value, str):
        raise UserError(f"{where} must be an expression, such as \"subject LIKE 'images/%'\".")
    try:
        return cesql.parse(value)
    except cesql.ParseError as error:
        raise UserError(f"{where}: {error}") from None


def _allowed(spec: Mapping[str, Any], name: str) -> frozenset[str] | None:
    """Return the only values of an attribute with which a filter can pass, or None when it may have any."""
    ((dialect, value),) = spec.items()
    if dialect == "exact":
        return frozenset({value[name]}) if name in value else None
    if dialect == "cesql":
        return cesql.parse(value).allowed(name)
    if dialect == "all":
        return _intersection(_allowed(one, name) for one in value)
    if dialect == "any":
        found = [_allowed(one, name) for one in value]
        known = [one for one in found if one is not None]
        return frozenset().union(*known) if len(known) == len(found) else None
    return None


def _intersection(found: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    known = [one for one in found if one is not None]
    return frozenset.intersection(*known) if known else None


def _without_data(spec: Mapping[str, Any], *, negated: bool = False) -> dict[str, Any] | None:
    """Return a filter that passes at least what the given one passes and looks at no data; None: everything.

    Under a `not` a part with data is left out whole, because leaving out a part of it would keep events back.
    """
    ((dialect, value),) = spec.items()
    if dialect == "data":
        return None
    if dialect in ("all", "any"):
        inner = [_without_data(one, negated=negated) for one in value]
        kept = [one for one in inner if one is not None]
        widens = (dialect == "all") is not negated
        if not kept or (len(kept) < len(inner) and not widens):
            return None
        return {dialect: kept}
    if dialect == "not":
        found = _without_data(value, negated=not negated)
        return None if found is None else {"not": found}
    return {dialect: dict(value) if isinstance(value, Mapping) else value}
