"""The three types of CESQL, and how a value of one becomes a value of another (specification, 3.7)."""

from __future__ import annotations

import re
from typing import Literal

from trainlet_functions.triggers.cesql.faults import Fault

Value = str | int | bool
Type = Literal["String", "Integer", "Boolean", "Any"]
_INTEGER = re.compile(r"[+-]?[0-9]+")
MIN, MAX = -(2**31), 2**31 - 1


def type_of(value: Value) -> Type:
    """Return the type of a value; a bool is no Integer."""
    if isinstance(value, bool):
        return "Boolean"
    return "Integer" if isinstance(value, int) else "String"


def zero(kind: Type) -> Value:
    """Return what an expression of a type is worth when it fails; Boolean's for a type that is not known."""
    if kind == "String":
        return ""
    return 0 if kind == "Integer" else False


def wrap(number: int) -> int:
    """Return a number as 32 signed bits hold it."""
    return (number + 2**31) % 2**32 - 2**31


def cast(value: Value, kind: Type) -> Value:
    """Return a value as another type."""
    if kind == "String":
        return string(value)
    if kind == "Integer":
        return integer(value)
    return boolean(value) if kind == "Boolean" else value


def string(value: Value) -> str:
    """Return a value as a String, which always works."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def integer(value: Value) -> int:
    """Return a value as an Integer of 32 bits."""
    if not isinstance(value, str):
        return int(value)
    if _INTEGER.fullmatch(value) and len(value) < 1000 and MIN <= (number := int(value)) <= MAX:
        return number
    raise Fault("cast", f"{value[:60]!r} is no 32-bit integer", 0)


def boolean(value: Value) -> bool:
    """Return a value as a Boolean."""
    if not isinstance(value, str):
        return bool(value)
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Fault("cast", f"{value[:60]!r} is neither true nor false", False)
