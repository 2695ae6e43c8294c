"""`trainlet prices`: what a price list would change, and adding it to the price book."""

from __future__ import annotations

from pathlib import Path

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.core import wire
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings


@click.group()
def prices() -> None:
    """Compare price lists with the prices that apply, and add new versions."""


@prices.command()
@click.argument("file", type=click.Path(path_type=Path))
@output.json_option
def diff(file: Path, as_json: bool) -> None:
    """Show which versions of FILE are new, and what each changes."""
    _show(connect(Settings.from_environment()).diff_prices(_read(file)), "would be added", as_json)


@prices.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--retroactive", is_flag=True, help="Allow a version that begins in the past.")
@output.json_option
def apply(file: Path, retroactive: bool, as_json: bool) -> None:
    """Add the versions of FILE that are new. What was applied is never changed."""
    body = _read(file).model_copy(update={"retroactive": retroactive})
    _show(connect(Settings.from_environment()).apply_prices(body), "was added", as_json)


def _read(file: Path) -> wire.PriceFile:
    try:
        return wire.PriceFile(text=file.read_text(encoding="utf-8"), name=str(file))
    except (OSError, ValueError) as error:
        raise UserError(f"The price list {file} cannot be read: {error}. Correct the path or the file.") from error


def _show(found: wire.PriceChanges, what: str, as_json: bool) -> None:
    if as_json:
        output.print_json(found.model_dump(mode="json"))
        return
    if not found.versions:
        click.echo("Nothing is new: every version of this list was applied before.")
    for version in found.versions:
        click.echo(f"version {version.version} {what}, effective from {version.effective_from}")
        for line in version.changes:
            click.echo(f"  {line}")


COMMANDS = (prices,)
