"""What goes wrong in an expression: when it is read, and when it meets an event."""

from __future__ import annotations

from typing import Literal

from trainlet.core.errors import UserError

Kind = Literal["math", "cast", "missingAttribute", "missingFunction", "functionEvaluation"]


class ParseError(UserError):
    """Raised for a text that is no expression; `position` counts characters from 0."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        around = text[max(0, position - 30) : position] + "<here>" + text[position : position + 30]
        super().__init__(f"The CESQL expression cannot be read at character {position + 1}: {problem} ({around}).")
        self.position = position


class Fault(Exception):
    """Ends an evaluation. `value` is what the failing part is worth, where the specification gives it a value."""

    def __init__(self, kind: Kind, message: str, value: str | int | bool | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.value = value
