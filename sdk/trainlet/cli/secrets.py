"""`trainlet secrets`: what this machine keeps for `@step(secrets=[...])`; values go in and are never printed."""

from __future__ import annotations

import sys

import click

from trainlet.cli import output
from trainlet.client import secrets as kept
from trainlet.core.settings import Settings


@click.group()
def secrets() -> None:
    """Keep values for steps that name them: `@step(secrets=["hf-token"])`."""


@secrets.command("set")
@click.argument("name")
@click.option("--keyring", "in_keyring", is_flag=True, help="Keep it in the OS keyring instead of a 0600 file.")
def put(name: str, in_keyring: bool) -> None:
    """Ask for a value and keep it; a pipe is read: trainlet secrets set hf-token < FILE."""
    kept.check_name(name)
    if sys.stdin.isatty():
        value = click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
    else:
        value = sys.stdin.read().rstrip("\n")
    kept.put(Settings.from_environment().home, name, value, in_keyring=in_keyring)
    click.echo(f"{name} is kept; a step with secrets=[{name!r}] finds it in {kept.variable(name)}.")


@secrets.command("ls")
@output.json_option
def list_names(as_json: bool) -> None:
    """List the names, where each is kept, and the variable that a step finds it in."""
    found = kept.names(Settings.from_environment().home)
    if as_json:
        output.print_json([{"name": name, "kept": where} for name, where in found.items()])
    else:
        rows = [(name, where, kept.variable(name)) for name, where in found.items()]
        output.table("", ("name", "kept in", "variable"), rows)


@secrets.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a value."""
    kept.remove(Settings.from_environment().home, name)
    click.echo(f"{name} is forgotten.")


COMMANDS = (secrets,)
