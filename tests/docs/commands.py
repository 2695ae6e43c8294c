"""The commands that pages show, as the command line has them."""

from __future__ import annotations

import importlib
import pkgutil
import shlex

import click

from trainlet import cli


def named(command: str) -> tuple[click.Command, str, list[str]]:
    """Return the command that a line names, its name, and the words after that; fails when there is none."""
    _, name, *arguments = shlex.split(command)
    rooms = [importlib.import_module(f"trainlet.cli.{one.name}") for one in pkgutil.iter_modules(cli.__path__)]
    known = {one.name: one for room in rooms for one in getattr(room, "COMMANDS", ())}
    assert name in known, f"there is no command {name}"
    return known[name], name, arguments
