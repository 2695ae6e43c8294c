"""`trainlet billing export|verify`: the ledger as files that others read, and the proof that they say the same."""

from __future__ import annotations

import click

import trainlet
from trainlet.cli import output
from trainlet.client import connect, stores
from trainlet.core import bills
from trainlet.core.clocks import SystemClock, rfc3339
from trainlet.core.settings import Settings


@click.command()
@click.option("--focus", "version", default="1.2", show_default=True, help="The version of FOCUS.")
@click.option("--period", help="A month in UTC, such as 2026-07; without it the one that goes on, marked as such.")
@click.option("--to", required=True, metavar="DIR|s3://...", help="Where the export goes.")
@click.option("--issuer", envvar="TRAINLET_BILLING_ISSUER", help="Who issues the invoices.  [default: trainlet]")
@click.option("--account-id", envvar="TRAINLET_BILLING_ACCOUNT_ID", help="The account that pays.  [default: trainlet]")
@click.option("--account-name", envvar="TRAINLET_BILLING_ACCOUNT_NAME", help="Its name.  [default: trainlet]")
@click.option("--all-projects", is_flag=True, help="Every project; needs an admin's token.")
@output.json_option
def export(
    version: str,
    period: str | None,
    to: str,
    issuer: str | None,
    account_id: str | None,
    account_name: str | None,
    all_projects: bool,
    as_json: bool,
) -> None:
    """Write a period as FOCUS: Parquet and CSV, a schema, and a manifest with sums and hashes.

    A closed period is exported once into a place: the same again changes nothing, and another one is refused.
    """
    from trainlet_functions.exports import columns, frames, parties, writing

    columns.focus(version)
    frames.arrow()
    named = parties.Parties.named(issuer=issuer, account_id=account_id, account_name=account_name)
    store = stores.open_store(to)
    client = connect(Settings.from_environment())
    chosen = None if period is None else str(bills.Period.parse(period))
    with client.billing_rows(chosen, bills.EVERY_PROJECT if all_projects else None) as (snapshot, rows):
        written = writing.write(
            store,
            snapshot,
            rows,
            version=version,
            parties=named,
            created_at=rfc3339(SystemClock().wall_ns()),
            generator=f"trainlet {trainlet.__version__}",
        )
    made = written.manifest
    if as_json:
        shown = {"store": store.url, "folder": written.folder, "new": written.new}
        output.print_json({**shown, "manifest": made.model_dump(mode="json")})
        return
    state = "closed" if not made.provisional else f"{made.state}: provisional, as of {made.high_water}"
    click.echo(f"period {made.period} ({state}) as FOCUS {made.focus_version}")
    click.echo(f"{'written to' if written.new else 'was already in'} {store.url}/{written.folder}")
    click.echo(
        f"{made.rows:,} charges, {made.seconds:,} device-seconds, {output.exact(made.billed_nano)} {made.currency}"
        f" (list {output.exact(made.list_nano)})"
    )
    for invoice in made.invoices:
        click.echo(f"  {invoice.id}  {output.exact(invoice.billed_nano)} {made.currency}  {invoice.rows:,} charges")
    if made.unpriced_skus:
        click.echo(f"without a price, at 0 and marked x_Unpriced: {', '.join(made.unpriced_skus)}")
