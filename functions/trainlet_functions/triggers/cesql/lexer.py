"""A text as tokens: the longest one at each place, keywords in any case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from trainlet_functions.triggers.cesql.faults import ParseError

Kind = Literal["operator", "string", "integer", "word", "function", "end"]
MAX_LENGTH = 8192
KEYWORDS = frozenset({"AND", "OR", "XOR", "NOT", "LIKE", "EXISTS", "IN", "TRUE", "FALSE"})
_SPACE = re.compile(r"[ \t\r\n]*")
# In the order of the choice between tokens of the same length.
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("operator", re.compile(r"<=|>=|<>|!=|[(),*/%+\-=<>]")),
    ("string", re.compile(r'"(?:\\.|""|[^"\\])*"|' r"'(?:\\.|''|[^'\\])*'", re.DOTALL)),
    ("integer", re.compile(r"[+-]?[0-9]+")),
    ("word", re.compile(r"[A-Za-z0-9]+")),
    ("function", re.compile(r"[A-Za-z][A-Za-z_]*")),
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text. `text` is upper case for keywords and operators, the content of a string, else as written."""

    kind: Kind
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, with one of kind `end` behind them; raises ParseError."""
    if len(text) > MAX_LENGTH:
        raise ParseError(f"it has {len(text)} characters, at most {MAX_LENGTH} are taken", text, MAX_LENGTH)
    found: list[Token] = []
    position = _end_of_space(text, 0)
    while position < len(text):
        token, end = _token(text, position)
        found.append(token)
        position = _end_of_space(text, end)
    return [*found, Token("end", "", len(text))]


def _end_of_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()


def _token(text: str, position: int) -> tuple[Token, int]:
    best: tuple[int, Kind] | None = None
    for kind, pattern in _PATTERNS:
        match = pattern.match(text, position)
        if match is not None and (best is None or match.end() > best[0]):
            best = (match.end(), kind)
    if best is None:
        quote = text[position] in "\"'"
        raise ParseError("a string that does not end" if quote else f"unknown sign {text[position]!r}", text, position)
    end, kind = best
    raw = text[position:end]
    if kind in ("word", "function") and raw.upper() in KEYWORDS:
        return Token("operator", raw.upper(), position), end
    if kind == "string":
        # Only the quote itself is unescaped: LIKE has its own meaning for the other backslashes.
        return Token("string", raw[1:-1].replace("\\" + raw[0], raw[0]), position), end
    return Token(kind, raw, position), end
