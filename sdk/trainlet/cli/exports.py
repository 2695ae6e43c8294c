"""`trainlet billing export|verify`: the ledger as files that others read, and the proof that they say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import trainlet
from trainlet.cli import feeds, output
from trainlet.client import connect, stores
from trainlet.core import bills
from trainlet.core.clocks import SystemClock, rfc3339
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings

if TYPE_CHECKING:
    from trainlet_functions.exports.verifying import Report


@click.command()
@click.option("--focus", "version", default="1.2", show_default=True, help="The version of FOCUS.")
@click.option("--period", help="A month in UTC, such as 2026-07; without it the one that goes on, marked as such.")
@click.option("--to", required=True, metavar="DIR|s3://...", help="Where the export goes.")
@click.option("--issuer", envvar="TRAINLET_BILLING_ISSUER", help="Who issues the invoices.  [default: trainlet]")
@click.option("--account-id", envvar="TRAINLET_BILLING_ACCOUNT_ID", help="The account that pays.  [default: trainlet]")
@click.option("--account-name", envvar="TRAINLET_BILLING_ACCOUNT_NAME", help="Its name.  [default: trainlet]")
@output.all_projects_option
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
    with feeds.rows(period, all_projects) as (snapshot, rows):
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


@click.command()
@click.argument("place", metavar="DIR|s3://...")
@click.option("--period", help="Only exports of this month.")
@click.option("--offline", is_flag=True, help="Only what can be told from the files: do not ask the ledger.")
@output.json_option
def verify(place: str, period: str | None, offline: bool, as_json: bool) -> int:
    """Read the exports under a place again, and compare them with FOCUS and with the ledger, to the nano.

    Exits with 1 where anything differs. Of an open period the ledger may have gone on since: that is told, and is no
    difference.
    """
    from trainlet_functions.exports import frames, reading, verifying

    frames.arrow()
    chosen = None if period is None else str(bills.Period.parse(period))
    store = stores.open_store(place)
    found = [(folder, reading.manifest(store, folder)) for folder in reading.folders(store)]
    found = [(folder, made) for folder, made in found if chosen in (None, made.period)]
    if not found and chosen is not None:
        raise UserError(f"{store.url} holds no export of {chosen}.")
    if not found:
        raise UserError(
            f"{store.url} holds no export: there is no manifest in it. `trainlet billing export` makes one."
        )
    reports: list[Report] = []
    client = None if offline else connect(Settings.from_environment())
    for folder, made in found:
        if client is None:
            reports.append(verifying.verify(store, folder, made=made))
        else:
            with client.billing_rows(made.period, made.scope) as ledger:
                reports.append(verifying.verify(store, folder, ledger, made))
        if not as_json:
            _show(reports[-1])
    if as_json:
        output.print_json([_data(report) for report in reports])
    return 0 if all(report.ok for report in reports) else 1


def _show(report: Report) -> None:
    made = report.manifest
    click.echo(f"{report.folder or '.'}: period {made.period}, {'provisional' if made.provisional else 'closed'}")
    _lines("files", report.files.count, report.files.shown, f"{len(made.parts)} files are as the manifest says")
    broken = [str(one) for one in report.focus]
    _lines(
        "FOCUS", len(broken), broken, f"{made.rows:,} charges hold {report.rules} rules of FOCUS {made.focus_version}"
    )
    if report.ledger is not None:
        same = f"{output.exact(made.billed_nano)} {made.currency}"
        if not made.provisional:
            _lines("ledger", report.ledger.count, report.ledger.shown, f"{same} in both, 0 differences")
        elif not report.since.count:
            click.echo(f"  ledger  {same} in both, still")
        else:
            click.echo(f"  ledger  went on since {made.high_water}: {report.since.count} changes")


def _lines(what: str, count: int, shown: list[str], good: str) -> None:
    if not count:
        click.echo(f"  {what:7} {good}")
        return
    click.echo(f"  {what:7} {count} {'difference' if count == 1 else 'differences'}")
    for line in shown:
        click.echo(f"          {line}")
    if count > len(shown):
        click.echo(f"          and {count - len(shown)} more")


def _data(report: Report) -> dict[str, Any]:
    return {
        "folder": report.folder,
        "ok": report.ok,
        "period": report.manifest.period,
        "provisional": report.manifest.provisional,
        "rules": report.rules,
        "files": report.files.shown,
        "focus": [str(one) for one in report.focus],
        "ledger": None if report.ledger is None else report.ledger.shown,
        "since": report.since.shown,
    }
