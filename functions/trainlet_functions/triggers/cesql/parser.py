"""Tokens as an expression: which operator binds tighter, and to which side (specification, 2 and 3.6).

From the tightest: calls; NOT and `-`; LIKE, EXISTS and IN; `* / %`; `+ -`; comparisons; AND, OR and XOR. The last three
are equal and group to the right, as in the specification's grammar: `a OR b AND c` is `a OR (b AND c)`, and
`a AND b OR c` is `a AND (b OR c)`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from trainlet_functions.triggers.cesql import casts, functions, nodes
from trainlet_functions.triggers.cesql.faults import Fault, ParseError
from trainlet_functions.triggers.cesql.lexer import Token, tokens

MAX_DEPTH = 100


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise Fault("math", "a division by zero", 0)
    size = abs(left) // abs(right)
    return casts.wrap(size if (left < 0) == (right < 0) else -size)


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise Fault("math", "a division by zero", 0)
    size = abs(left) % abs(right)
    return -size if left < 0 else size


_Arithmetic = Callable[[int, int], int]
_PRODUCTS: dict[str, _Arithmetic] = {
    "*": lambda left, right: casts.wrap(left * right),
    "/": _quotient,
    "%": _remainder,
}
_SUMS: dict[str, _Arithmetic] = {
    "+": lambda left, right: casts.wrap(left + right),
    "-": lambda left, right: casts.wrap(left - right),
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse(text: str) -> nodes.Node:
    """Read an expression; raises ParseError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> nodes.Node:
        found = self._logic()
        if self._peek.kind != "end":
            raise self._error(f"{self._peek} is not expected", self._hint())
        return found

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _is(self, *words: str) -> bool:
        return self._peek.kind == "operator" and self._peek.text in words

    def _error(self, problem: str, hint: str = "") -> ParseError:
        return ParseError(problem + hint, self._text, self._peek.position)

    def _hint(self) -> str:
        if self._peek.kind == "integer" and self._peek.text[0] in "+-":
            return f"; write a space behind the sign: {self._peek.text[0]} {self._peek.text[1:]}"
        return ""

    def _expect(self, word: str) -> None:
        if not self._is(word):
            raise self._error(f"{word!r} is expected, not {self._peek}")
        self._take()

    def _logic(self) -> nodes.Node:
        # Every nested expression comes by here, so this is where the depth is bounded.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"it is nested more than {MAX_DEPTH} deep")
        left = self._comparison()
        if self._is("AND", "OR", "XOR"):
            word = self._take().text
            left = nodes.Logic(left, self._logic(), word)
        self._depth -= 1
        return left

    def _comparison(self) -> nodes.Node:
        left = self._binary(_SUMS, lambda: self._binary(_PRODUCTS, self._postfix))
        while self._is("=", "!=", "<>", *_COMPARISONS):
            word = self._take().text
            right = self._binary(_SUMS, lambda: self._binary(_PRODUCTS, self._postfix))
            if word in _COMPARISONS:
                left = nodes.Numbers(left, right, _COMPARISONS[word], "Boolean")
            else:
                left = nodes.Equal(left, right, word == "=")
        return left

    def _binary(self, operations: dict[str, _Arithmetic], tighter: Callable[[], nodes.Node]) -> nodes.Node:
        left = tighter()
        while self._is(*operations):
            word = self._take().text
            left = nodes.Numbers(left, tighter(), operations[word], "Integer")
        return left

    def _postfix(self) -> nodes.Node:
        left = self._unary()
        while self._is("NOT", "LIKE", "IN"):
            negated = self._is("NOT")
            if negated:
                self._take()
            if self._is("LIKE"):
                left = self._like(left)
            elif self._is("IN"):
                left = self._in(left)
            else:
                raise self._error(f"LIKE or IN is expected behind NOT, not {self._peek}")
            left = nodes.Not(left) if negated else left
        return left

    def _like(self, left: nodes.Node) -> nodes.Node:
        self._take()
        if self._peek.kind != "string":
            raise self._error(f"LIKE needs a pattern in quotes, not {self._peek}")
        return nodes.Like(left, self._take().text)

    def _in(self, left: nodes.Node) -> nodes.Node:
        self._take()
        self._expect("(")
        choices = [self._logic()]
        while self._is(","):
            self._take()
            choices.append(self._logic())
        self._expect(")")
        return nodes.In(left, tuple(choices))

    def _unary(self) -> nodes.Node:
        signs: list[str] = []
        while self._is("NOT", "-"):
            signs.append(self._take().text)
            if len(signs) > MAX_DEPTH:
                raise self._error(f"it has more than {MAX_DEPTH} signs in a row")
        found = self._atom()
        for sign in reversed(signs):
            found = nodes.Not(found) if sign == "NOT" else nodes.Negative(found)
        return found

    def _atom(self) -> nodes.Node:
        if self._is("EXISTS"):
            self._take()
            return nodes.Exists(self._name())
        if self._is("("):
            self._take()
            inner = self._logic()
            self._expect(")")
            return inner
        if self._is("TRUE", "FALSE"):
            return nodes.Literal(self._take().text == "TRUE")
        if self._peek.kind == "string":
            return nodes.Literal(self._take().text)
        if self._peek.kind == "integer":
            return self._integer()
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        if self._peek.kind in ("word", "function") and following.text == "(" and following.kind == "operator":
            return self._call()
        return nodes.Attribute(self._name())

    def _integer(self) -> nodes.Node:
        text = self._peek.text
        if len(text) > 20 or not casts.MIN <= int(text) <= casts.MAX:
            raise self._error(f"{text[:40]} is beyond 32 bits")
        self._take()
        return nodes.Literal(int(text))

    def _name(self) -> str:
        if self._peek.kind != "word":
            raise self._error(f"an attribute or a value is expected, not {self._peek}")
        return self._take().text.lower()

    def _call(self) -> nodes.Node:
        if any(character.isdecimal() for character in self._peek.text):
            raise self._error(f"{self._peek} is no name of a function")
        name = self._take().text.upper()
        self._take()
        arguments: list[nodes.Node] = []
        while not self._is(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._logic())
        self._take()
        found = functions.find(name, len(arguments))
        if found is None:
            return nodes.Call(name, tuple(arguments), None, (), "Boolean")
        function, parameters = found
        return nodes.Call(name, tuple(arguments), function.call, parameters, function.kind)
