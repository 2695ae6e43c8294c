"""What is shown while a run goes on: plain lines, and on a terminal below them the running tasks with their progress."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from trainlet.core import wire

METRICS = 4


class Screen(Protocol):
    """Where a run is shown; safe to use from several threads."""

    def say(self, text: str) -> None:
        """Print a line for good."""
        ...

    def show(self, task: wire.TaskView) -> None:
        """Show a task as it is now."""
        ...


@contextlib.contextmanager
def screen(*, quiet: bool = False) -> Iterator[Screen]:
    """Open the screen that fits: nothing, plain lines, or a live terminal."""
    if quiet:
        yield _Quiet()
    elif not sys.stdout.isatty():
        yield _Lines()
    else:
        with terminal(Console(highlight=False)) as board:
            yield board


@contextlib.contextmanager
def terminal(console: Console) -> Iterator[Screen]:
    """Open a live screen on a console."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Board(progress)


class _Quiet:
    def say(self, text: str) -> None:
        """Say nothing."""

    def show(self, task: wire.TaskView) -> None:
        """Show nothing."""


class _Lines:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print whole lines, whoever prints."""
        with self._lock:
            click.echo(text)

    def show(self, task: wire.TaskView) -> None:
        """Lines say enough."""


class _Board:
    """A row per running task; what is said scrolls above them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print a line above the rows."""
        self._progress.console.print(Text(text), soft_wrap=True)

    def show(self, task: wire.TaskView) -> None:
        """Add, change or remove the row of a task."""
        with self._lock:
            row = self._rows.get(task.key)
            if task.state != "running":
                if row is not None:
                    self._progress.remove_task(self._rows.pop(task.key))
                return
            if row is None:
                name = task.key.removeprefix(f"{task.run_id}.")
                row = self._rows[task.key] = self._progress.add_task(name, total=None, note="")
            told = task.progress or {}
            self._progress.update(
                row,
                completed=told.get("done") or 0,
                total=told.get("total"),
                note=_note(task, told.get("message") or ""),
            )


def _note(task: wire.TaskView, message: str) -> str:
    metrics = [f"{name} {value:.4g}" for name, value in list(task.metrics.items())[:METRICS]]
    return "  ".join([*([message] if message else []), *metrics])
