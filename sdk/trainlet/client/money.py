"""The client's calls about money: `/v1/budgets`, `/v1/estimates`, `/v1/usage/totals`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainlet.core import bills, wire
from trainlet.core.budgets import Budget, BudgetView
from trainlet.core.estimates import Estimate, EstimateRequest

if TYPE_CHECKING:
    from trainlet.client.http import Client


class Money:
    """What a client can say about budgets, estimates and sums of usage."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put_budget(self, name: str, terms: Budget) -> BudgetView:
        """Set a budget, or set it anew."""
        return self._client._call("PUT", f"/v1/budgets/{name}", BudgetView, terms)

    def budgets(self) -> list[BudgetView]:
        """Return the budgets that this project may see, by name."""
        return [BudgetView.model_validate(item) for item in self._client._pages("/v1/budgets")]

    def delete_budget(self, name: str) -> None:
        """Remove a budget."""
        self._client._call("DELETE", f"/v1/budgets/{name}", wire.Page)

    def estimate(self, body: EstimateRequest) -> Estimate:
        """Return what steps would cost."""
        return self._client._call("POST", "/v1/estimates", Estimate, body)

    def totals(self, **asked: Any) -> Iterator[bills.UsageTotals]:
        """Yield pages of sums of usage, in the order of time; `asked` are the query parameters."""
        cursor: int | None = None
        while True:
            given = {**asked, "cursor": cursor}
            params = {name: value for name, value in given.items() if value is not None}
            page = self._client._call("GET", "/v1/usage/totals", bills.UsageTotals, params=params)
            yield page
            if page.next is None:
                return
            cursor = page.next
