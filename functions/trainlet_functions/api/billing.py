"""`/v1/billing`: periods and their invoices, and the rows of the billing ledger."""

from __future__ import annotations

from flask import Response, g

from trainlet.core import bills
from trainlet.core.errors import UserError
from trainlet_functions.api.routes import Query, Routes, project
from trainlet_functions.batches import batches
from trainlet_functions.billing import closing, snapshots
from trainlet_functions.platform import Platform

routes = Routes()
_SCOPE = Query("project", description="`*` for every project; needs an admin's token")
_BATCH = 500


@routes.add("GET", "/v1/billing/periods", reply=bills.PeriodList, query=(_SCOPE,))
def periods(platform: Platform, project: str | None) -> bills.PeriodList:
    """Return all billing periods with their state, digest and invoices."""
    with platform.database.read() as tx:
        return bills.PeriodList(items=closing.periods(tx, scope(project)))


@routes.add("POST", "/v1/billing/periods/{period}:close", "admin", body=bills.ClosePeriod, reply=bills.PeriodView)
def close(platform: Platform, period: str, body: bills.ClosePeriod) -> bills.PeriodView:
    """Close a period for good and return its invoices."""
    return closing.close(platform.database, bills.Period.parse(period), g.identity.label, unpriced=body.unpriced)


@routes.add("GET", "/v1/billing/rows", query=(Query("period"), _SCOPE), media="application/x-ndjson")
def rows(platform: Platform, period: str | None, project: str | None) -> Response:
    """Stream the rows of a period, the current one by default, as lines of JSON between a head and an end."""
    whose = scope(project)
    with platform.database.read() as tx:
        chosen = bills.Period.of(tx.now_ns // 10**9) if period is None else bills.Period.parse(period)
        snapshots.head(tx, chosen, whose)
    lines = (b"".join(batch) for batch in batches(snapshots.stream(platform.database, chosen, whose), _BATCH))
    return Response(lines, content_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


def scope(wanted: str | None) -> str:
    """Return whose usage was asked for, `*` for that of all; raises AccessError for that of others."""
    own = project()
    if wanted is None or wanted == own:
        return own
    g.identity.require("admin")
    if "\0" in wanted:
        raise UserError(f"{wanted!r} is no project.")
    return wanted
