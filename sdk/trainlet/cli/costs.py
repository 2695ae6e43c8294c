"""`trainlet cost`: what a pipeline or step of a file would cost, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from trainlet import estimates
from trainlet.cli import loading, output
from trainlet.core.errors import TrainletError, UserError
from trainlet.core.estimates import Estimate, EstimateRow
from trainlet.steps import Step

_FROM = {"given": "as given", "unknown": "never ran", "free": "no GPU"}


@click.group()
def cost() -> None:
    """Estimate what something would cost."""


@cost.command()
@click.argument("target", metavar="FILE[:NAME]")
@click.option(
    "--duration",
    "-d",
    "durations",
    multiple=True,
    metavar="[TASK=]2h",
    help="How long a task takes (default: as before).",
)
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; JSON or text.")
@click.option("--tasks", type=click.IntRange(0, 1_000_000), help="How many tasks of a step (default: 1).")
@output.json_option
def estimate(
    target: str, durations: tuple[str, ...], params: tuple[str, ...], tasks: int | None, as_json: bool
) -> None:
    """Show what a run of FILE would cost at the prices of now: exactly what those seconds would be billed."""
    found = loading.load(target)
    if isinstance(found, Step):
        if params:
            raise UserError(f"{target} is a step: its parameters do not change what it costs. Leave --param out.")
        answer = found.estimate(_durations(durations), tasks=1 if tasks is None else tasks)
    elif tasks is not None:
        raise UserError(f"--tasks is for a step; {target} is a pipeline, which says itself how many tasks it has.")
    else:
        answer = found.estimate(_durations(durations), **loading.parameters(params, found, complete=False))
    if as_json:
        output.print_json(answer.model_dump(mode="json"))
        return
    columns = ["task", "GPU", "tasks", "seconds each", "GPU-seconds", "cost", "at most", "from"]
    rows = [_cells(row, answer.currency) for row in answer.rows]
    output.table("", columns, rows, numeric=("tasks", "seconds each", "GPU-seconds", "cost", "at most"))
    click.echo(f"{estimates.words(answer)} (price list {answer.price_version})")


def sentence(ask: Callable[[], Estimate]) -> str:
    """Return an estimate in words, or why there is none: what is asked beside something else must not end it."""
    try:
        return estimates.words(ask())
    except TrainletError as error:
        return f"it cannot be estimated: {error}"


def _durations(texts: tuple[str, ...]) -> dict[str, str] | str | None:
    named: dict[str, str] = {}
    every: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            every.append(text)
        elif name in named:
            raise UserError(f"--duration {name} is given twice. Remove one of them.")
        else:
            named[name] = value
    if len(every) > 1 or (every and named):
        raise UserError("--duration is given for all tasks once (2h), or for each by its name (train=2h).")
    return every[0] if every else named or None


def _cells(row: EstimateRow, currency: str) -> list[Any]:
    gpus = ", ".join(f"{gpu.sku}:{gpu.count}" for gpu in row.gpus)
    return [
        row.node,
        gpus or "none",
        f"{row.tasks} each" if row.each else row.tasks,
        row.seconds,
        row.gpu_seconds,
        None if row.cost_nano is None else output.money(row.cost_nano, currency),
        None if row.most_nano is None else output.money(row.most_nano, currency),
        f"median of {row.seen}" if row.basis == "history" else _FROM[row.basis],
    ]


COMMANDS = (cost,)
