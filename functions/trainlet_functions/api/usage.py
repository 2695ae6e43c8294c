"""`/v1/usage`, `/v1/prices`, `/v1/checkpoints`: what was used, what it costs, what was saved."""

from __future__ import annotations

from typing import Any

from flask import g

from trainlet.core import bills, ranges, wire
from trainlet.core.errors import UserError
from trainlet_functions import checkpoints
from trainlet_functions.api import billing
from trainlet_functions.api.routes import Query, Routes, project
from trainlet_functions.billing import book, pricefiles, reports, spending, totals
from trainlet_functions.checkpoints import viewing
from trainlet_functions.platform import Platform
from trainlet_functions.state import tasks

routes = Routes()


@routes.add("GET", "/v1/usage", reply=wire.UsageReport, query=(Query("run"), Query("task")))
def usage(platform: Platform, run: str | None, task: str | None) -> wire.UsageReport:
    """Return the metered seconds of a run, a task or the project, with their cost."""
    with platform.database.read() as tx:
        return reports.usage(tx, project(), run_id=run, task=task)


@routes.add(
    "GET",
    "/v1/usage/totals",
    reply=bills.UsageTotals,
    query=(
        Query("run"),
        Query("start_s", "integer", minimum=ranges.EARLIEST_S, maximum=ranges.LATEST_S),
        Query("end_s", "integer", minimum=ranges.EARLIEST_S, maximum=ranges.LATEST_S),
        Query("resolution", description="s, m, h or d (the default)"),
        Query(
            "group_by",
            description="project, run, step, sku, function, device, phase, lease, tag:NAME; joined by commas",
        ),
        Query("tz", description="the time zone in which hours and days begin"),
        Query("project", description="`*` for every project; needs an admin's token"),
        Query("cursor", "integer", minimum=0, maximum=ranges.LATEST_S),
    ),
)
def usage_totals(
    platform: Platform,
    run: str | None,
    start_s: int | None,
    end_s: int | None,
    resolution: str | None,
    group_by: str | None,
    tz: str | None,
    project: str | None,
    cursor: int | None,
) -> bills.UsageTotals:
    """Return what was used by time and by group, a bounded stretch of time at once."""
    if resolution not in (None, "s", "m", "h", "d"):
        raise UserError(f"?resolution={resolution[:20]!r} is none of s, m, h, d.")
    chosen: Any = resolution or "d"
    by = tuple(dict.fromkeys(name for name in (group_by or "").split(",") if name))
    whose = billing.scope(project)
    asked = totals.Question(
        None if whose == bills.EVERY_PROJECT else whose, run, start_s, end_s, chosen, by, ranges.zone(tz or "UTC")
    )
    with platform.database.read() as tx:
        return totals.totals(tx, asked, cursor)


@routes.add("GET", "/v1/prices")
def prices(platform: Platform) -> dict[str, Any]:
    """Return the price list: per version and SKU the exact nano-units per GPU-second, and the hour price they stand for."""
    with platform.database.read() as tx:
        versions = tx.prices.versions
    return {
        "versions": [
            {
                "version": version.version,
                "currency": version.currency,
                "from_s": version.from_s,
                "nano_per_gpu_second": {sku: version.nano_per_second(sku) for sku in version.per_gpu_hour},
                "per_gpu_hour": {sku: str(price) for sku, price in version.per_gpu_hour.items()},
            }
            for version in versions
        ]
    }


@routes.add("POST", "/v1/prices:diff", "admin", body=wire.PriceFile, reply=wire.PriceChanges)
def price_changes(platform: Platform, body: wire.PriceFile) -> wire.PriceChanges:
    """Say what applying a price list would add."""
    with platform.database.read() as tx:
        return book.difference(tx, pricefiles.parse(body.text, body.name))


@routes.add("POST", "/v1/prices:apply", "admin", body=wire.PriceFile, reply=wire.PriceChanges)
def apply_prices(platform: Platform, body: wire.PriceFile) -> wire.PriceChanges:
    """Add the versions of a price list that are new."""
    given = pricefiles.parse(body.text, body.name)
    with platform.database.write() as tx:
        changes = book.apply(tx, given, g.identity.label, retroactive=body.retroactive)
        if body.retroactive and changes.versions:
            spending.recount(tx)
    return changes


@routes.add("GET", "/v1/checkpoints", reply=wire.Page, query=(Query("task"),))
def list_checkpoints(platform: Platform, task: str | None) -> wire.Page:
    """Return the committed checkpoints of a task, the newest first, as the store has them."""
    if task is None:
        raise UserError("Name the task: /v1/checkpoints?task=KEY.")
    with platform.database.read() as tx:
        key = tasks.row(tx, project(), task).key
    notes = checkpoints.list_checkpoints(platform.store, f"runs/{key}")
    return wire.Page(items=[note.model_dump(mode="json") for note in notes])


@routes.add(
    "GET",
    "/v1/checkpoints/links",
    reply=wire.CheckpointLinks,
    query=(Query("task"), Query("step", "integer", minimum=0), Query("valid_s", "integer", minimum=1, maximum=604_800)),
)
def link_checkpoint(
    platform: Platform, task: str | None, step: int | None, valid_s: int | None
) -> wire.CheckpointLinks:
    """Return links that read a checkpoint of a task (the newest) without credentials, for an hour by default."""
    if task is None:
        raise UserError("Name the task: /v1/checkpoints/links?task=KEY.")
    with platform.database.read() as tx:
        key = tasks.row(tx, project(), task).key
    return viewing.links(platform.store, f"runs/{key}", step, 3600 if valid_s is None else valid_s)
