"""`trainlet billing report|summary|rates`: what was spent, for people, spreadsheets and programs."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import click

from trainlet import billing
from trainlet.cli import output

_csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


@click.command()
@click.option("--for", "during", metavar="RANGE", help='Such as "last month", "7 days", today, 2026-07.')
@click.option("--start", metavar="TIME", help="A date or time, included.")
@click.option("--end", metavar="TIME", help="A date or time, not included; now, without it.")
@click.option("-r", "--resolution", type=click.Choice(["h", "d", "month"]), default="d", show_default=True)
@click.option("--tz", metavar="ZONE", help="The time zone of dates and days, such as Europe/Berlin.  [default: UTC]")
@click.option("--tag-names", metavar="NAMES", help="Tags to keep apart, with commas between them; * is every one.")
@click.option("--show-resources", is_flag=True, help="Also what each SKU cost.")
@output.all_projects_option
@_csv
@output.json_option
def report(
    during: str | None,
    start: str | None,
    end: str | None,
    resolution: Any,
    tz: str | None,
    tag_names: str | None,
    show_resources: bool,
    all_projects: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show what each run cost per hour, day or month, with all corrections that are known by now."""
    names = [name.strip() for name in (tag_names or "").split(",") if name.strip()]
    found = billing.report(
        during=during, start=start, end=end, resolution=resolution, tz=tz, tag_names=names, all_projects=all_projects
    )
    if as_json:
        output.print_json([_data(item, show_resources) for item in found])
        return
    if not found and not as_csv:
        click.echo("Nothing was used in that time.")
        return
    layout = {"h": "%Y-%m-%d %H:%M %Z", "d": "%Y-%m-%d", "month": "%Y-%m"}[resolution]
    tags = sorted({name for item in found for name in item.tags})
    skus = sorted({sku for item in found for sku in item.cost_by_resource}) if show_resources else []
    columns = ["interval", "project", "run", "function", *tags, "seconds", *skus, "cost"]
    rows: list[list[Any]] = [
        [
            item.interval_start.isoformat() if as_csv else item.interval_start.strftime(layout),
            item.environment_name,
            item.object_id,
            item.description,
            *(item.tags.get(name, "") for name in tags),
            item.seconds if as_csv else f"{item.seconds:,}",
            *(_sum(item.cost_by_resource.get(sku, Decimal(0)), as_csv) for sku in skus),
            _sum(item.cost, as_csv),
        ]
        for item in found
    ]
    if as_csv:
        _write([*columns, "currency"], [[*row, item.currency] for row, item in zip(rows, found, strict=True)])
        return
    columns[-1] = f"cost ({found[0].currency})"
    blank = [""] * (len(columns) - len(skus) - 3)
    seconds, total = sum(item.seconds for item in found), sum((item.cost for item in found), Decimal(0))
    by_sku = [sum((item.cost_by_resource.get(sku, Decimal(0)) for item in found), Decimal(0)) for sku in skus]
    rows.append(["total", *blank, f"{seconds:,}", *(_sum(one) for one in by_sku), _sum(total)])
    output.table("", columns, rows, numeric=("seconds", *skus, columns[-1]))
    unpriced = sum(item.unpriced_seconds for item in found)
    if unpriced:
        click.echo(f"{unpriced:,} device-seconds have no price yet and cost nothing here.")
    if any(item.virtual for item in found):
        click.echo("Some devices are virtual: no GPU was used, and the cost is what real ones would have cost.")


@click.command()
@click.option("--period", help="A month in UTC, such as 2026-07; without it the one that goes on.")
@output.all_projects_option
@output.json_option
def summary(period: str | None, all_projects: bool, as_json: bool) -> None:
    """Show what a month is billed: metered, corrections of earlier months, rounding."""
    found = billing.summary(period=period, all_projects=all_projects)
    if as_json:
        output.print_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        click.echo("Nothing is billed in that month.")
    for one in found:
        state = "closed" if one.state == "closed" else f"{one.state}, so far"
        click.echo(f"{one.project}, {one.period} ({state}): {one.seconds:,} device-seconds")
        lines = [(f"  {sku}", cost) for sku, cost in one.metered_cost_breakdown.items()]
        lines += [("metered", one.metered_cost), ("corrections of earlier months", one.adjustments["corrections"])]
        lines += [("rounding", one.adjustments["rounding"]), ("billed", one.billed_cost)]
        for name, cost in lines:
            click.echo(f"  {name:32} {_sum(cost):>24} {one.currency}")
        if one.unpriced_skus:
            click.echo(f"  without a price, so at 0: {', '.join(one.unpriced_skus)}")


@click.command()
@_csv
@output.json_option
def rates(as_csv: bool, as_json: bool) -> None:
    """Show the list prices that hold now, and those that are known to come."""
    found = billing.rates()
    if as_json:
        output.print_json([dataclasses.asdict(one) for one in found])
        return
    columns = ["SKU", "per GPU-hour", "per GPU-second", "currency", "from (UTC)", "version"]
    rows = [
        [
            one.sku,
            f"{one.per_hour:.9f}",
            f"{one.per_second:.9f}",
            one.currency,
            f"{one.effective_from:%Y-%m-%d %H:%M:%S}",
            one.version,
        ]
        for one in found
    ]
    if as_csv:
        _write(columns, rows)
        return
    output.table("", columns, rows, numeric=columns[1:3])


def _sum(cost: Decimal, plain: bool = False) -> str:
    return f"{cost:.9f}" if plain else f"{cost:,.9f}"


def _write(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)


def _data(item: billing.Item, resources: bool) -> dict[str, Any]:
    data = dataclasses.asdict(item)
    data["interval_start"] = item.interval_start.isoformat()
    if not resources:
        del data["cost_by_resource"]
    return data
