"""How the command line writes: tables for people, plain lines for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainlet.core import loglines, wire

COLORS = {
    "succeeded": "green",
    "failed": "red",
    "running": "blue",
    "canceled": "yellow",
    "queued": "yellow",
    "dispatched": "yellow",
}
all_projects_option = click.option("--all-projects", is_flag=True, help="Every project; needs an admin's token.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def console() -> Console:
    """Return a console for stdout."""
    return Console(highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    numeric: Sequence[str] = (),
    for_people: bool | None = None,
) -> None:
    """Print a table for people (by default on a terminal), tab-separated lines elsewhere."""
    if not (sys.stdout.isatty() if for_people is None else for_people):
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join("" if cell is None else str(cell) for cell in row))
        return
    shown = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, justify="right" if column in numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*[_cell(cell) for cell in row])
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(shown)


def _cell(cell: Any) -> str:
    text = "" if cell is None else str(cell)
    color = COLORS.get(text)
    return f"[{color}]{text}[/{color}]" if color else escape(text)


def money(nano: int, currency: str) -> str:
    """Write nano-units as money."""
    return f"{nano / 1e9:.6f} {currency}"


def exact(nano: int) -> str:
    """Write nano-units with all their digits."""
    units, rest = divmod(abs(nano), 10**9)
    return f"{'-' if nano < 0 else ''}{units:,}.{rest:09}"


def seconds_between(start: str | None, end: str | None) -> str:
    """Write how long something took, from RFC 3339 stamps."""
    if not start or not end:
        return ""
    return f"{(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():.1f} s"


def log_line(line: wire.LogLine) -> str:
    """Write a line with its time, its node, and the attempt and rank where there are several."""
    return loglines.shown(line.at, line.node, line.text, epoch=line.epoch, rank=line.rank)


def clock(stamp: str | None) -> str:
    """Write the time of day of a stamp (UTC)."""
    return loglines.time_of_day(stamp)
