"""The built-in functions of CESQL (specification, 3.5), and IS_INT and IS_BOOL, which Eventing has too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainlet_functions.triggers.cesql import casts
from trainlet_functions.triggers.cesql.casts import Type, Value
from trainlet_functions.triggers.cesql.faults import Fault


@dataclass(frozen=True, slots=True)
class Function:
    """A function: the types of its parameters, the type of any number of further ones, and of its value."""

    call: Callable[..., Value]
    kind: Type
    fixed: tuple[Type, ...] = ()
    more: Type | None = None

    def parameters(self, count: int) -> tuple[Type, ...] | None:
        """Return the types of so many parameters, or None when it does not take so many."""
        rest = count - len(self.fixed)
        if rest < 0 or (rest and self.more is None):
            return None
        return (*self.fixed, *([self.more or "Any"] * rest))


def find(name: str, count: int) -> tuple[Function, tuple[Type, ...]] | None:
    """Return the function of a name (upper case) and a number of arguments, with the types of its parameters."""
    for function in BUILT_IN.get(name, ()):
        parameters = function.parameters(count)
        if parameters is not None:
            return function, parameters
    return None


def _abs(number: int) -> int:
    if number == casts.MIN:
        raise Fault("math", f"ABS({number}) is beyond 32 bits", casts.MAX)
    return abs(number)


def _left(text: str, count: int) -> str:
    if count < 0:
        raise Fault("functionEvaluation", f"LEFT cannot take {count} characters", text)
    return text[:count]


def _right(text: str, count: int) -> str:
    if count < 0:
        raise Fault("functionEvaluation", f"RIGHT cannot take {count} characters", text)
    return text[max(0, len(text) - count) :]


def _substring(text: str, position: int, length: int = casts.MAX) -> str:
    if length < 0:
        raise Fault("functionEvaluation", f"SUBSTRING cannot take {length} characters", "")
    if position == 0:
        return ""
    if abs(position) > len(text):
        raise Fault("functionEvaluation", f"SUBSTRING cannot begin at {position} of {len(text)} characters", "")
    start = position - 1 if position > 0 else len(text) + position
    return text[start : start + length]


def _concatenate(*texts: str) -> str:
    return "".join(texts)


def _join(delimiter: str, *texts: str) -> str:
    return delimiter.join(texts)


def _is(cast: Callable[[Value], Value]) -> Callable[[Value], bool]:
    def can(value: Value) -> bool:
        try:
            cast(value)
        except Fault:
            return False
        return True

    return can


BUILT_IN: dict[str, tuple[Function, ...]] = {
    "INT": (Function(casts.integer, "Integer", ("Any",)),),
    "BOOL": (Function(casts.boolean, "Boolean", ("Any",)),),
    "STRING": (Function(casts.string, "String", ("Any",)),),
    "IS_INT": (Function(_is(casts.integer), "Boolean", ("Any",)),),
    "IS_BOOL": (Function(_is(casts.boolean), "Boolean", ("Any",)),),
    "ABS": (Function(_abs, "Integer", ("Integer",)),),
    "LENGTH": (Function(len, "Integer", ("String",)),),
    "CONCAT": (Function(_concatenate, "String", (), "String"),),
    "CONCAT_WS": (Function(_join, "String", ("String",), "String"),),
    "LOWER": (Function(str.lower, "String", ("String",)),),
    "UPPER": (Function(str.upper, "String", ("String",)),),
    "TRIM": (Function(str.strip, "String", ("String",)),),
    "LEFT": (Function(_left, "String", ("String", "Integer")),),
    "RIGHT": (Function(_right, "String", ("String", "Integer")),),
    "SUBSTRING": (
        Function(_substring, "String", ("String", "Integer")),
        Function(_substring, "String", ("String", "Integer", "Integer")),
    ),
}
