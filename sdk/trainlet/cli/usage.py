"""`trainlet usage`: metered GPU-seconds and what they cost, by time, by whom, and second by second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from trainlet.cli import output, summary
from trainlet.client import connect
from trainlet.client.money import Money
from trainlet.core import ranges
from trainlet.core.bills import FULL_SHARE, UsageTotal
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings
from trainlet.runs import get

_SECONDS = "seconds"


@click.command()
@click.argument("names", metavar="[[seconds] RUN]", nargs=-1)
@click.option("--for", "phrase", metavar="RANGE", help='"today", "last month", "last 7 days", 2026-07, 2026-07-03.')
@click.option("--start", metavar="TIME", help="From this time on, such as 2026-07-03T12:00.")
@click.option("--end", metavar="TIME", help="Until before this time (default: now).")
@click.option(
    "--resolution", "-r", type=click.Choice(["s", "m", "h", "d"]), help="Sums by second, minute, hour or day."
)
@click.option("--group-by", "-g", metavar="NAMES", help="project, run, step, sku, function, device, phase, tag:NAME.")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Where hours and days begin.")
@click.option("--project", help="Of another project, * for all; needs an admin's token.")
@output.json_option
def usage(
    names: tuple[str, ...],
    phrase: str | None,
    start: str | None,
    end: str | None,
    resolution: str | None,
    group_by: str | None,
    tz: str,
    project: str | None,
    as_json: bool,
) -> None:
    """Show metered GPU-seconds and their cost: of a RUN, of all runs, or summed by time and group.

    `trainlet usage seconds RUN` shows every second that a run held devices.
    """
    by_second = len(names) == 2 and names[0] == _SECONDS
    if len(names) > 1 and not by_second:
        raise UserError(f"Name one run: trainlet usage {names[-1]}, or trainlet usage seconds {names[-1]}.")
    run_id = names[-1] if names else None
    if by_second:
        resolution, group_by = resolution or "s", group_by or "step,phase,sku"
    if not any((phrase, start, end, resolution, group_by, project)):
        _plain(run_id, as_json)
        return
    asked = {
        "run": run_id,
        "resolution": resolution,
        "group_by": group_by,
        "tz": tz,
        "project": project,
        **_range(phrase, start, end, tz),
    }
    found = Money(connect(Settings.from_environment())).totals(**asked)
    _stream(found, [name for name in (group_by or "").split(",") if name], as_json)


def _range(phrase: str | None, start: str | None, end: str | None, tz: str) -> dict[str, int]:
    zone = ranges.zone(tz)
    if phrase is not None:
        if start is not None or end is not None:
            raise UserError("--for names the whole range; leave --start and --end out.")
        span = ranges.parse(phrase, int(time.time()), zone)
        return {"start_s": span.start_s, "end_s": span.end_s}
    given = {"start_s": start, "end_s": end}
    return {name: ranges.moment(text, zone) for name, text in given.items() if text is not None}


def _stream(pages: Iterator[Any], by: list[str], as_json: bool) -> None:
    """Print sums as their pages come, and what they add up to."""
    items: list[UsageTotal] = []
    currency, start_s, end_s = "", 0, 0
    for page in pages:
        items += page.items
        currency, start_s, end_s = page.currency, page.start_s, page.end_s
    parts, cost = sum(item.parts for item in items), sum(item.cost_nano for item in items)
    if as_json:
        sums = {"parts": parts, "cost_nano": cost, "currency": currency, "start_s": start_s, "end_s": end_s}
        output.print_json({"items": [item.model_dump(mode="json") for item in items], **sums})
        return
    used, known = sum(item.used_ms for item in items), sum(item.known_ms for item in items)
    rows: list[list[Any]] = [
        [
            item.start,
            *(item.group[name] for name in by),
            _seconds(item.parts),
            *([_busy(item.used_ms, item.known_ms)] if known else []),
            output.money(item.cost_nano, currency),
        ]
        for item in items
    ]
    seen = [_busy(used, known)] if known else []
    rows.append(["total", *("" for _ in by), _seconds(parts), *seen, output.money(cost, currency)])
    columns = ["from", *by, "GPU-seconds", *(["busy"] if known else []), "cost"]
    output.table("", columns, rows, numeric=("GPU-seconds", "busy", "cost"))
    unpriced = sum(item.unpriced_s for item in items)
    if unpriced:
        click.echo(f"{unpriced} device-seconds have no price and are in no cost", err=True)


def _seconds(parts: int) -> str:
    whole, rest = divmod(parts, FULL_SHARE)
    return str(whole) if not rest else f"{parts / FULL_SHARE:.3f}"


def _busy(used_ms: int, known_ms: int) -> str:
    return f"{100 * used_ms / known_ms:.0f}%" if known_ms else ""


def _plain(run_id: str | None, as_json: bool) -> None:
    """Show one run with its tasks, or every run with what it used."""
    if run_id is not None:
        found = get(run_id)
        if as_json:
            output.print_json(found.usage().model_dump(mode="json"))
            return
        summary.tasks_table(found)
        summary.bill(found)
        return
    report = connect(Settings.from_environment()).usage()
    if as_json:
        output.print_json(report.model_dump(mode="json"))
        return
    by_run: dict[tuple[str, str], list[int]] = {}
    for row in report.rows:
        sums = by_run.setdefault((row.run_id, f"{row.sku}{' (virtual)' if row.virtual else ''}"), [0, 0])
        sums[0] += row.seconds
        sums[1] += row.cost_nano or 0
    rows = [
        [run, sku, seconds, output.money(cost, report.currency)]
        for (run, sku), (seconds, cost) in sorted(by_run.items())
    ]
    rows.append(["total", "", report.gpu_seconds, output.money(report.cost_nano, report.currency)])
    output.table("", ["run", "device", "GPU-seconds", "cost"], rows, numeric=("GPU-seconds", "cost"))


COMMANDS = (usage,)
