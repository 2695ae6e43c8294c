"""`/v1/budgets`: what may be used. Admins set limits; a project sees those that bind it. `/v1/estimates`: what would be."""

from __future__ import annotations

from flask import g

from trainlet.core import wire
from trainlet.core.budgets import Budget, BudgetView
from trainlet.core.estimates import Estimate, EstimateRequest
from trainlet_functions.api.routes import Routes, project
from trainlet_functions.billing import budgets, estimates
from trainlet_functions.platform import Platform
from trainlet_functions.state import admission, funds

routes = Routes()


@routes.add("PUT", "/v1/budgets/{name}", "admin", body=Budget, reply=BudgetView)
def put_budget(platform: Platform, name: str, body: Budget) -> BudgetView:
    """Set a budget, or set it anew; what it leaves no room for stops, and what has room again starts."""
    with platform.database.write() as tx:
        view = budgets.put(tx, name, body, g.identity.label)
        funds.look(tx, name)
        admission.admit(tx)
    return view


@routes.add("GET", "/v1/budgets", reply=wire.Page)
def list_budgets(platform: Platform) -> wire.Page:
    """List the budgets that bind the caller's project, all of them for an admin, and how they stand."""
    with platform.database.read() as tx:
        return wire.Page(items=[view.model_dump(mode="json") for view in budgets.all_(tx, _project())])


@routes.add("GET", "/v1/budgets/{name}", reply=BudgetView)
def get_budget(platform: Platform, name: str) -> BudgetView:
    """Return a budget and how it stands."""
    with platform.database.read() as tx:
        return budgets.get(tx, name, _project())


@routes.add("DELETE", "/v1/budgets/{name}", "admin", reply=wire.Page)
def delete_budget(platform: Platform, name: str) -> wire.Page:
    """Remove a budget; what waited for it starts."""
    with platform.database.write() as tx:
        budgets.delete(tx, name)
        admission.admit(tx)
    return wire.Page(items=[])


@routes.add("POST", "/v1/estimates", body=EstimateRequest, reply=Estimate)
def estimate(platform: Platform, body: EstimateRequest) -> Estimate:
    """Return what steps would cost: rated like the leases they would be. Nothing is started or set aside."""
    with platform.database.read() as tx:
        return estimates.estimate(tx, project(), body)


def _project() -> str | None:
    """Return whose budgets the caller sees; None: all."""
    return None if "admin" in g.identity.scopes else str(g.identity.project)
