"""A byte stream cut into lines, as a person at a terminal would have seen them.

What is written again and again over itself (a carriage return: a progress bar) has no lines of its own. Its newest state
becomes one now and then: soon at first, more seldom the longer it goes on, and its last state always. A bar below
another bar, drawn by going down a line and up again, is shown on the line of the one above it.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable
from typing import Literal

Stream = Literal["stdout", "stderr", "system"]
Line = tuple[int, Stream, str]
LINE_CHARS = 16 * 1024
BAR_FIRST_S = 1.0
BAR_MOST_S = 30.0
HELD_S = 0.5

_UP = "\x1b[A"
_BELOW = re.compile(r"(\n{1,8})\r([^\r\n\x1b]*)((?:\x1b\[A)+)")
_PERHAPS_BELOW = re.compile(r"\n{1,8}(\r[^\r\n\x1b]*(\x1b\[?)?)?\Z")


class Splitter:
    """Cuts one stream. `feed` what was read, and ask for `overdue` lines when `wait_s` has passed."""

    def __init__(self, stream: Stream, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self._clock = clock
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""
        self._held_s: float | None = None
        self._below: dict[int, str] = {}
        self._state = self._shown = ""
        self._pause_s = BAR_FIRST_S
        self._due_s: float | None = None

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that are complete now; no data means that the stream is over."""
        text = self._rest + self._decoder.decode(data, final=not data)
        return self._cut(text, final=not data, hold=bool(data))

    def wait_s(self) -> float | None:
        """Return how long to wait at most before asking for what is overdue; None: there is nothing to wait for."""
        known = [at for at in (self._due_s, self._held_s) if at is not None]
        return max(0.0, min(known) - self._clock()) if known else None

    def overdue(self) -> list[Line]:
        """Return the newest state of a bar that nobody has been shown for a while."""
        lines: list[Line] = []
        if self._held_s is not None and self._clock() >= self._held_s:
            lines += self._cut(self._rest, final=False, hold=False)
        return lines + self._bar()

    def _cut(self, text: str, *, final: bool, hold: bool) -> list[Line]:
        text = _BELOW.sub(self._take_below, text)
        held = self._held(text) if hold else ""
        parts = text.removesuffix(held).split("\n")
        self._rest = parts.pop() + held
        lines = [piece for part in parts for piece in self._whole(part)]
        if final and self._rest:
            lines += self._whole(self._rest)
            self._rest = ""
        elif "\r" in self._rest.rstrip("\r\n"):
            self._redrawn()
            lines += self._bar()
        elif len(self._rest) >= LINE_CHARS:
            lines += self._pieces(self._rest)
            self._rest = ""
        return lines

    def _held(self, text: str) -> str:
        """Return the end of a bar's line that may yet turn out to be the way down to a bar below it."""
        found = _PERHAPS_BELOW.search(text)
        above = text[: found.start()].rpartition("\n")[2] if found else ""
        if found is None or "\r" not in above.rstrip("\r"):
            self._held_s = None
            return ""
        self._held_s = self._held_s or self._clock() + HELD_S
        return found[0]

    def _take_below(self, found: re.Match[str]) -> str:
        down, text, up = found[1], found[2].strip(), found[3]
        if len(down) != len(up) // len(_UP):
            return found[0]
        if text:
            self._below[len(down)] = text
        else:
            self._below.pop(len(down), None)
        self._state = ""  # something has changed, whatever the bar above it says
        return ""

    def _redrawn(self) -> None:
        """Keep the newest state of the line that is being written over."""
        head, newline, tail = self._rest.partition("\n")
        states = [one for one in head.replace(_UP, "").split("\r") if one.strip()]
        newest = states[-1] if states else ""
        back = "\r" if head.endswith("\r") else ""  # what comes next is written over it
        self._rest = f"\r{newest}{back}{newline}{tail}"
        parts = [newest.rstrip(), *(self._below[depth] for depth in sorted(self._below))]
        state = "  ".join(part for part in parts if part)
        if state and state != self._state:
            self._state = state
            self._due_s = self._due_s or self._clock() + self._pause_s

    def _bar(self) -> list[Line]:
        """Return the state of the bar if its time has come."""
        if self._due_s is None or self._clock() < self._due_s:
            return []
        self._pause_s = min(self._pause_s * 1.5, BAR_MOST_S)
        self._due_s = None
        if self._state == self._shown:
            return []
        self._shown = self._state
        return self._pieces(self._state)

    def _whole(self, text: str) -> list[Line]:
        """Return a line that has ended; of a bar its last state, once."""
        text = text.rstrip("\r")
        if "\r" not in text:
            return self._pieces(text)
        last = text.rsplit("\r", 1)[1].replace(_UP, "").rstrip()
        shown = self._shown
        self._below.clear()
        self._state = self._shown = ""
        self._pause_s, self._due_s, self._held_s = BAR_FIRST_S, None, None
        return [] if last and last == shown else self._pieces(last)

    def _pieces(self, text: str) -> list[Line]:
        at_ms = time.time_ns() // 1_000_000
        text = text.replace("\0", "\\x00")
        return [
            (at_ms, self.stream, text[start : start + LINE_CHARS]) for start in range(0, max(len(text), 1), LINE_CHARS)
        ]
