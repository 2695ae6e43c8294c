"""A parsed expression: what it is worth for an event, and what can be said of it before there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainlet_functions.triggers.cesql import casts, nodes, parser
from trainlet_functions.triggers.cesql.casts import Value
from trainlet_functions.triggers.cesql.faults import Fault, Kind


@dataclass(frozen=True, slots=True)
class Outcome:
    """The value of an expression for an event; where something failed, `error` says what and `value` is a stand-in."""

    value: Value
    error: Kind | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read."""

    text: str
    root: nodes.Node

    def evaluate(self, attributes: nodes.Attributes) -> Outcome:
        """Evaluate for the attributes of an event, up to the first failure."""
        try:
            return Outcome(self.root.value(attributes))
        except Fault as fault:
            own = isinstance(self.root, nodes.Call | nodes.Attribute) and fault.value is not None
            kind = self.root.kind
            typed = own and fault.value is not None and kind in ("Any", casts.type_of(fault.value))
            value = fault.value if typed and fault.value is not None else casts.zero(kind)
            return Outcome(value, fault.kind, str(fault))

    def matches(self, attributes: nodes.Attributes) -> bool:
        """Say whether it is exactly true, without any failure on the way (specification, 1.2)."""
        try:
            return self.root.value(attributes) is True
        except Fault:
            return False

    def unknown_functions(self) -> list[str]:
        """Return the calls that fail for every event, as `NAME/number of arguments`."""
        calls = (node for node in _walk(self.root) if isinstance(node, nodes.Call))
        return [f"{call.name}/{len(call.arguments)}" for call in calls if call.function is None]

    def allowed(self, name: str) -> frozenset[str] | None:
        """Return the only values of an attribute with which it can be true, or None when nothing is known."""
        return _allowed(self.root, name)


def parse(text: str) -> Expression:
    """Read an expression; raises ParseError with the place."""
    return Expression(text, parser.parse(text))


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for field in ("operand", "left", "right"):
        inner = getattr(node, field, None)
        if inner is not None:
            yield from _walk(inner)
    for field in ("choices", "arguments"):
        for inner in getattr(node, field, ()):
            yield from _walk(inner)


def _allowed(node: nodes.Node, name: str) -> frozenset[str] | None:
    match node:
        case nodes.Equal(left, right, True):
            for one, other in ((left, right), (right, left)):
                if one == nodes.Attribute(name) and isinstance(other, nodes.Literal):
                    return frozenset({other.constant}) if isinstance(other.constant, str) else None
        case nodes.In(operand, choices) if operand == nodes.Attribute(name):
            constants = [choice.constant for choice in choices if isinstance(choice, nodes.Literal)]
            texts = [constant for constant in constants if isinstance(constant, str)]
            return frozenset(texts) if len(texts) == len(choices) else None
        case nodes.Logic(left, right, "AND"):
            first, second = _allowed(left, name), _allowed(right, name)
            return first & second if first is not None and second is not None else first if second is None else second
        case nodes.Logic(left, right, "OR"):
            first, second = _allowed(left, name), _allowed(right, name)
            return first | second if first is not None and second is not None else None
    return None
