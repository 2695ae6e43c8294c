"""Where the lines of a written module stand in the person's own file or cell, so that a remote error names those.

A step of a script or a notebook travels as a module that was written for it; its line numbers mean nothing to whoever
wrote the step. This stays with the process that submits: the bundle itself must not depend on where its code stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Namer = Callable[[str, int], str]


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` lines from line `start` of the written module, which stand from `line` on in the file `path`."""

    start: int
    count: int
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Origins:
    """The origin of a written module `name` with the text `text`."""

    name: str
    text: str
    stretches: tuple[Stretch, ...]

    def traceback(self, told: str, namer: Namer) -> str:
        """Return a remote traceback with the places where the person wrote the lines."""

        def own(found: re.Match[str]) -> str:
            line, rest, shown = int(found["line"]), found["rest"], found["shown"]
            place = self._place(line, namer)
            return found[0] if place is None or not self._is(line, shown) else f"  {place}{rest}\n{shown}"

        frame = rf'^  File "{re.escape(self.name)}", line (?P<line>\d+)(?P<rest>.*)\n(?P<shown> {{4}}.*)$'
        return re.sub(frame, own, told, flags=re.MULTILINE)

    def where(self, told: str, namer: Namer) -> str:
        """Return the place of a failure, `step_mine.py:7`, as the person knows it."""
        name, _, line = told.rpartition(":")
        place = self._place(int(line), namer) if name == self.name and line.isdecimal() else None
        return told if place is None else place

    def _is(self, line: int, shown: str) -> bool:
        """Say whether this line is what ran: in a notebook a step may have been defined anew meanwhile."""
        lines = self.text.splitlines()
        return line <= len(lines) and lines[line - 1].strip() == shown.strip()

    def _place(self, line: int, namer: Namer) -> str | None:
        for one in self.stretches:
            if one.start <= line < one.start + one.count:
                return namer(one.path, one.line + line - one.start)
        return None
