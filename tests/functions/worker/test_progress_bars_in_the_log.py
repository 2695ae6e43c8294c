"""A bar that is drawn over itself is a line now and then, with its last state, and never a flood."""

from __future__ import annotations

import io
import os
import threading

import pytest
from tqdm import tqdm

from trainlet.core.wire import LogsRequest
from trainlet_functions.worker import lines, output
from trainlet_functions.worker.lines import Splitter


class Terminal(io.StringIO):
    """What a bar writes to; each write arrives as bytes of its own."""

    def __init__(self, splitter: Splitter) -> None:
        super().__init__()
        self._splitter = splitter
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        if text:
            self.lines += [line for _, _, line in self._splitter.feed(text.encode())]
        return len(text)

    def close_stream(self) -> list[str]:
        self.lines += [line for _, _, line in self._splitter.feed(b"")]
        return self.lines


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(clock: Clock) -> Terminal:
    return Terminal(Splitter("stderr", clock))


def bar(terminal: Terminal, size: int, **options: object) -> tqdm[int]:
    return tqdm(range(size), file=terminal, mininterval=0, bar_format="{desc} {n}/{total}", **options)


def test_a_quick_bar_is_one_line_with_its_end(terminal: Terminal) -> None:
    for _ in bar(terminal, 100, desc="load"):
        pass
    assert terminal.close_stream() == ["load 100/100"]


def test_a_long_bar_is_shown_more_and_more_seldom(terminal: Terminal, clock: Clock) -> None:
    for _ in bar(terminal, 3600, desc="train"):
        clock.now += 1.0
    shown = terminal.close_stream()
    assert 3600 / lines.BAR_MOST_S <= len(shown) <= 3600 / lines.BAR_MOST_S + 20
    assert shown[0] in ("train 1/3600", "train 2/3600")
    assert shown[-1] == "train 3600/3600"
    assert len(set(shown)) == len(shown)


def test_a_bar_that_hangs_shows_where_it_hangs(terminal: Terminal, clock: Clock) -> None:
    splitter = terminal._splitter
    steps = iter(bar(terminal, 10, desc="train"))
    next(steps), next(steps), next(steps)
    assert terminal.lines == [] and splitter.wait_s() == lines.BAR_FIRST_S
    clock.now += lines.BAR_FIRST_S
    assert [text for _, _, text in splitter.overdue()] == ["train 2/10"]
    assert splitter.overdue() == [] and splitter.wait_s() is None


def test_bars_inside_of_each_other_are_one_line_at_a_time(terminal: Terminal, clock: Clock) -> None:
    for _ in bar(terminal, 2, desc="epoch"):
        for _ in bar(terminal, 100, desc="batch", leave=False):
            clock.now += 1.0
    shown = terminal.close_stream()
    assert len(shown) < 30
    assert any(line.startswith("epoch 0/2  batch ") for line in shown)
    assert any(line.startswith("epoch 1/2  batch ") for line in shown)
    assert shown[-1] == "epoch 2/2"


def test_each_bar_of_a_loop_over_epochs_has_its_last_line(terminal: Terminal) -> None:
    for epoch in range(3):
        for _ in bar(terminal, 50, desc=f"epoch {epoch}"):
            pass
    assert terminal.close_stream() == [f"epoch {epoch} 50/50" for epoch in range(3)]


def test_lines_between_the_states_of_a_bar_are_all_there(terminal: Terminal) -> None:
    for step in bar(terminal, 3, desc="train"):
        tqdm.write(f"loss {step}", file=terminal)
    found = terminal.close_stream()
    assert [line for line in found if line.startswith("loss")] == ["loss 0", "loss 1", "loss 2"]


def test_a_bar_without_an_end_keeps_no_more_than_its_newest_state(terminal: Terminal) -> None:
    for step in range(100_000):
        terminal.write(f"\rstep {step}")
    assert len(terminal._splitter._rest) < 100
    assert terminal.close_stream() == ["step 99999"]


def test_the_state_of_a_bar_is_sent_while_the_step_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BAR_FIRST_S", 0.05)
    seen: list[str] = []
    arrived = threading.Event()

    def send(request: LogsRequest) -> int:
        seen.extend(text for _, _, text in request.lines)
        arrived.set()
        return request.offset + len(request.lines)

    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    sender = output.Output(send, lambda text: text)
    reader = threading.Thread(target=output.pump, args=(0, out_read, err_read, sender))
    reader.start()
    os.write(err_write, b"\r 10%|#         |")
    assert arrived.wait(60), "the step writes nothing more, and its state is shown all the same"
    os.close(out_write), os.close(err_write)
    reader.join(60)
    assert sender.close(lambda: True)
    assert seen == [" 10%|#         |"]


def test_a_flood_of_newlines_is_cut_in_linear_time(clock: Clock) -> None:
    splitter = Splitter("stdout", clock)
    assert len(splitter.feed(b"\n" * 300_000 + b"x")) == 300_000
    assert len(splitter.feed(b"\r" * 300_000 + b"\n" * 10)) == 10
