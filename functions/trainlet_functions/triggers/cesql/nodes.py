"""The parts of an expression. Each evaluates to a value, or ends the evaluation with a `Fault`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainlet_functions.triggers.cesql import casts
from trainlet_functions.triggers.cesql.casts import Type, Value
from trainlet_functions.triggers.cesql.faults import Fault

Attributes = Mapping[str, Value]


class Node(Protocol):
    """Any part of an expression; `kind` is the type of its value, where that is known before."""

    @property
    def kind(self) -> Type: ...

    def value(self, attributes: Attributes) -> Value:
        """Evaluate for the attributes of an event; raises Fault."""
        ...


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is written in the expression."""

    constant: Value

    @property
    def kind(self) -> Type:
        return casts.type_of(self.constant)

    def value(self, attributes: Attributes) -> Value:
        return self.constant


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the event."""

    name: str
    kind: Type = "Any"

    def value(self, attributes: Attributes) -> Value:
        found = attributes.get(self.name)
        if found is None:
            raise Fault("missingAttribute", f"the event has no attribute {self.name}", False)
        return found


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether the event has an attribute."""

    name: str
    kind: Type = "Boolean"

    def value(self, attributes: Attributes) -> Value:
        return attributes.get(self.name) is not None


@dataclass(frozen=True, slots=True)
class Not:
    """The other truth value."""

    operand: Node
    kind: Type = "Boolean"

    def value(self, attributes: Attributes) -> Value:
        return not casts.boolean(self.operand.value(attributes))


@dataclass(frozen=True, slots=True)
class Negative:
    """The number with the other sign."""

    operand: Node
    kind: Type = "Integer"

    def value(self, attributes: Attributes) -> Value:
        return casts.wrap(-casts.integer(self.operand.value(attributes)))


@dataclass(frozen=True, slots=True)
class Equal:
    """Whether two values are the same, the left one as the type of the right one; `expected` is False for `!=`."""

    left: Node
    right: Node
    expected: bool
    kind: Type = "Boolean"

    def value(self, attributes: Attributes) -> Value:
        left, right = self.left.value(attributes), self.right.value(attributes)
        return (casts.cast(left, casts.type_of(right)) == right) is self.expected


@dataclass(frozen=True, slots=True)
class Numbers:
    """An operation on two integers: a comparison, or arithmetic."""

    left: Node
    right: Node
    operation: Callable[[int, int], Value]
    kind: Type

    def value(self, attributes: Attributes) -> Value:
        left, right = self.left.value(attributes), self.right.value(attributes)
        return self.operation(casts.integer(left), casts.integer(right))


@dataclass(frozen=True, slots=True)
class Logic:
    """AND, OR or XOR; the first two look at the right side only when it decides."""

    left: Node
    right: Node
    word: str
    kind: Type = "Boolean"

    def value(self, attributes: Attributes) -> Value:
        left = casts.boolean(self.left.value(attributes))
        if left is (self.word == "OR") and self.word != "XOR":
            return left
        right = casts.boolean(self.right.value(attributes))
        return left is not right if self.word == "XOR" else right


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value is one of several, each as the type of the first."""

    operand: Node
    choices: tuple[Node, ...]
    kind: Type = "Boolean"

    def value(self, attributes: Attributes) -> Value:
        wanted = self.operand.value(attributes)
        kind = casts.type_of(wanted)
        return any(casts.cast(choice.value(attributes), kind) == wanted for choice in self.choices)


class Like:
    """Whether a text fits a pattern, in time that grows with the text and not with the ways to fit it.

    Between two `%` the first place that fits is always good enough, so nothing is ever tried twice.
    """

    kind: Type = "Boolean"

    def __init__(self, operand: Node, pattern: str) -> None:
        self.operand = operand
        self.pattern = pattern
        self._pieces = [re.compile(piece, re.DOTALL) for piece in _pieces(pattern)]
        self._sizes = [_size(piece) for piece in _pieces(pattern)]

    def value(self, attributes: Attributes) -> Value:
        return self.fits(casts.string(self.operand.value(attributes)))

    def fits(self, text: str) -> bool:
        """Say whether a text fits the pattern."""
        first, *between = self._pieces
        if not between:
            return first.fullmatch(text) is not None
        last, start = between.pop(), self._sizes[0]
        end = len(text) - self._sizes[-1]
        if start > end or first.match(text) is None or last.match(text, end) is None:
            return False
        for piece in between:
            found = piece.search(text, start, end)
            if found is None:
                return False
            start = found.end()
        return True


_ESCAPED = re.compile(r"\\([%_])|([%_])|(.)", re.DOTALL)


def _pieces(pattern: str) -> list[str]:
    """Return the regular expressions between the `%`; each matches texts of one length only."""
    pieces = [""]
    for escaped, wild, plain in _ESCAPED.findall(pattern):
        if wild == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if wild else re.escape(escaped or plain)
    return pieces


def _size(piece: str) -> int:
    return len(re.sub(r"\\(.)", r"\1", piece, flags=re.DOTALL))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function; one that does not exist is found out when it is evaluated, as specified."""

    name: str
    arguments: tuple[Node, ...]
    function: Callable[..., Value] | None
    parameters: tuple[Type, ...]
    kind: Type

    def value(self, attributes: Attributes) -> Value:
        if self.function is None:
            raise Fault("missingFunction", f"there is no function {self.name} of {len(self.arguments)} arguments")
        given = [
            casts.cast(argument.value(attributes), kind)
            for argument, kind in zip(self.arguments, self.parameters, strict=True)
        ]
        return self.function(*given)
