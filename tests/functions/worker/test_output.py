"""Output is cut into lines, bounded, and sent by offset until it is acknowledged."""

from __future__ import annotations

import threading

import pytest

from trainlet.client import ApiUnreachable
from trainlet.core.wire import LogsRequest
from trainlet_functions.worker import lines as cut
from trainlet_functions.worker import output
from trainlet_functions.worker.lines import Splitter
from trainlet_functions.worker.output import Output


def texts(*pieces: bytes) -> list[str]:
    splitter = Splitter("stdout")
    return [text for piece in (*pieces, b"") for _, _, text in splitter.feed(piece)]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ((b"one\ntwo\n",), ["one", "two"]),
        ((b"on", b"e\nlast"), ["one", "last"]),
        ((b"gr\xc3", b"\xbc\xc3\x9fe\n"), ["gr\u00fc\u00dfe"]),
        ((b"10%\r50%\r100%\n",), ["100%"]),
        ((b"dos\r\nlines\r\n",), ["dos", "lines"]),
        ((b"\n\n",), ["", ""]),
        ((b"a\0b\n",), ["a\\x00b"]),
    ],
)
def test_bytes_become_lines(pieces: tuple[bytes, ...], lines: list[str]) -> None:
    assert texts(*pieces) == lines


def test_a_line_without_end_is_cut_and_nothing_is_lost() -> None:
    lines = texts(*[b"x" * 10_000] * 10)
    assert "".join(lines) == "x" * 100_000
    assert max(map(len, lines)) <= cut.LINE_CHARS


class Api:
    """Takes lines, or does not."""

    def __init__(self) -> None:
        self.away = False
        self.lines: list[str] = []
        self.tried = threading.Event()

    def __call__(self, request: LogsRequest) -> int:
        self.tried.set()
        if self.away:
            raise ApiUnreachable("away")
        self.lines += [text for _, _, text in request.lines[len(self.lines) - request.offset :]]
        return len(self.lines)


def test_lines_wait_for_an_api_that_is_away() -> None:
    api = Api()
    api.away = True
    out = Output(api, str)
    out.add(0, [(0, "stdout", str(number)) for number in range(100)])
    assert api.tried.wait(5)
    api.away = False
    assert out.close(lambda: True)
    assert api.lines == [str(number) for number in range(100)]


def test_closing_gives_up_when_told_to_and_says_that_lines_are_left() -> None:
    api = Api()
    api.away = True
    out = Output(api, str)
    out.add(0, [(0, "stdout", "never")])
    assert not out.close(lambda: False)


def test_a_flood_of_empty_lines_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "BUFFER_CHARS", 10_000)
    api = Api()
    api.away = True
    out = Output(api, str)
    written = threading.Event()

    def flood() -> None:
        for _ in range(10):
            out.add(0, [(0, "stdout", "")] * 100)
        written.set()

    thread = threading.Thread(target=flood)
    thread.start()
    assert not written.wait(0.3)
    api.away = False
    assert written.wait(20)
    thread.join()
    assert out.close(lambda: True)
    assert len(api.lines) == 1000
