"""`trainlet billing`: periods, the invoices that closing them makes, and the commands of `exports` and `reports`."""

from __future__ import annotations

import click

from trainlet.cli import exports, feeds, output, reports
from trainlet.client import connect
from trainlet.core import bills
from trainlet.core.settings import Settings


@click.group()
def billing() -> None:
    """Close billing periods, read their invoices, and export what they hold."""


for _command in (
    exports.export,
    exports.verify,
    feeds.events,
    feeds.allocations,
    reports.report,
    reports.summary,
    reports.rates,
):
    billing.add_command(_command)


@billing.command()
@click.argument("period")
@click.option(
    "--unpriced", is_flag=True, help="Also while some usage has no price; a later price becomes a correction."
)
@output.json_option
def close(period: str, unpriced: bool, as_json: bool) -> None:
    """Close PERIOD (a month in UTC, such as 2026-07) for good and print its invoices."""
    client = connect(Settings.from_environment())
    found = client.close_period(str(bills.Period.parse(period)), bills.ClosePeriod(unpriced=unpriced))
    if as_json:
        output.print_json(found.model_dump(mode="json"))
        return
    click.echo(f"period {found.period} is {found.state}, digest {found.digest}")
    _invoices([found])


@billing.command()
@output.all_projects_option
@output.json_option
def periods(all_projects: bool, as_json: bool) -> None:
    """List the billing periods and their invoices."""
    found = connect(Settings.from_environment()).billing_periods(bills.EVERY_PROJECT if all_projects else None)
    if as_json:
        output.print_json([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        if not one.invoices:
            click.echo(f"period {one.period} is {one.state}; no invoices")
    _invoices(found)


def _invoices(found: list[bills.PeriodView]) -> None:
    rows = [
        [
            one.period,
            one.state,
            invoice.project,
            invoice.id,
            invoice.rows,
            invoice.seconds,
            output.money(invoice.metered_nano, one.currency),
            output.money(invoice.rounding_nano, one.currency),
            output.money(invoice.payable_nano, one.currency),
        ]
        for one in found
        for invoice in one.invoices
    ]
    columns = ["period", "state", "project", "invoice", "rows", "GPU-seconds", "metered", "rounding", "payable"]
    if rows:
        output.table("", columns, rows, numeric=columns[4:])


COMMANDS = (billing,)
