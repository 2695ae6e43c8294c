"""`trainlet budgets`: what may be used, how it stands, and setting it."""

from __future__ import annotations

import re
from typing import Any

import click
from pydantic import ValidationError

from trainlet.cli import output
from trainlet.client import connect
from trainlet.client.money import Money
from trainlet.core.budgets import Budget, BudgetView, amount, parse_limit
from trainlet.core.errors import UserError
from trainlet.core.gpus import canonical_sku
from trainlet.core.settings import Settings
from trainlet.core.specs import NAME_PATTERN


@click.group(invoke_without_command=True)
@click.pass_context
def budgets(context: click.Context) -> None:
    """Show, set and remove budgets and quotas (of projects; `--budget` of `trainlet run` is for one run)."""
    if context.invoked_subcommand is None:
        context.invoke(ls)


@budgets.command()
@output.json_option
def ls(as_json: bool = False) -> None:
    """List budgets and what is left of them."""
    found = _api().budgets()
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    if not found:
        click.echo('There is no budget. `trainlet budgets set NAME --for PROJECT --limit "500 USD"` sets one.')
        return
    _table(found)


@budgets.command("set")
@click.argument("name")
@click.option("--for", "covers", metavar="PROJECT", help="A project, a prefix (team-*) or * (default: yours).")
@click.option("--limit", metavar="SUM", required=True, help='"500 USD" or "200 GPU-hours".')
@click.option("--sku", metavar="GPU", help="Only this kind of device, such as A100.")
@click.option("--per", type=click.Choice(["day", "month", "total"]), default="month", show_default=True)
@click.option("--action", type=click.Choice(["stop", "warn"]), default="stop", show_default=True)
@click.option(
    "--strict", is_flag=True, help="Never exceed it: an attempt runs only for time that was set aside before."
)
@click.option("--warn-at", metavar="PERCENT", multiple=True, type=click.IntRange(1, 100), help="Tell at this (80).")
@output.json_option
def set_(
    name: str,
    covers: str | None,
    limit: str,
    sku: str | None,
    per: Any,
    action: Any,
    strict: bool,
    warn_at: tuple[int, ...],
    as_json: bool,
) -> None:
    """Set a budget, or set it anew. At the limit tasks save a checkpoint and stop; they can be resumed."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise UserError(f"{name!r} is no name of a budget. Write lower-case letters, digits and '-', as in team-month.")
    client = connect(Settings.from_environment())
    fields: dict[str, Any] = {
        **parse_limit(limit, "--limit "),
        "covers": covers or client.get_info().project,
        "sku": None if sku is None else canonical_sku(sku),
        "per": per,
        "action": action,
        "strict": strict,
    }
    if warn_at:
        fields["warn_at"] = warn_at
    try:
        terms = Budget(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{'.'.join(map(str, first['loc'])) or 'the budget'}: {first['msg']}.") from None
    view = Money(client).put_budget(name, terms)
    output.print_json(view.model_dump(mode="json")) if as_json else _table([view])


@budgets.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a budget; what waited for it starts."""
    _api().delete_budget(name)
    click.echo(f"budget {name} is removed")


def _api() -> Money:
    return Money(connect(Settings.from_environment()))


def _table(found: list[BudgetView]) -> None:
    rows = [
        [
            view.name,
            view.covers,
            f"{amount(view.limit, view.unit)}{f' of {view.sku}' if view.sku else ''}",
            view.per,
            f"{view.action}{' (strict)' if view.strict else ''}",
            "" if view.used is None else amount(view.used, view.unit),
            amount(view.held, view.unit) if view.held else "",
            "" if view.percent is None else f"{view.percent:g} %",
            view.state,
            view.until or "",
        ]
        for view in found
    ]
    columns = ["budget", "for", "limit", "per", "action", "used", "set aside", "percent", "state", "until (UTC)"]
    output.table("", columns, rows, numeric=("used", "set aside", "percent"))


COMMANDS = (budgets,)
