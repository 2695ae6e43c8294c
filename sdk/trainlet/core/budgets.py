"""Budgets and quotas: how much may be used, of what, by whom, in which period, and what happens then.

A limit is a sum of money or a number of GPU-seconds; with a `sku`, of that kind of device only. It covers one project, all
whose names begin alike (`team-*`: that is how projects nest), or every one (`*`). A run's own budget is such a limit, too.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from trainlet.core.durations import parse_money_nano
from trainlet.core.errors import UserError
from trainlet.core.gpus import canonical_sku
from trainlet.core.models import Reply, Request
from trainlet.core.specs import Name

Period = Literal["day", "month", "total"]
Action = Literal["warn", "stop"]
Covers = Annotated[
    str, StringConstraints(pattern=r"^(\*|[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?|[a-z0-9][a-z0-9-]{0,38}\*)$")
]
"""A project, a prefix of projects such as `team-*`, or `*`."""
_HOURS = re.compile(r"(?P<amount>[\d_,]*\.?\d+)\s*GPU[-\s](?P<unit>hours?|h|minutes?|min|seconds?|s)", re.IGNORECASE)
_UNIT_S = {"h": 3600, "m": 60, "s": 1}
_MOST = 10**18


class Budget(Request):
    """`PUT /v1/budgets/{name}`: a limit, per UTC day or month or in total.

    `stop` ends what runs after a checkpoint and lets nothing new start; `warn` only tells. Both tell at every percentage of
    `warn_at`. `strict` is never exceeded, not by a nano-unit: an attempt runs only for time that was set aside before.
    """

    covers: Covers
    money_nano: int | None = Field(default=None, gt=0, le=_MOST)
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    gpu_seconds: int | None = Field(default=None, gt=0, le=10**12)
    sku: str | None = Field(default=None, min_length=1, max_length=100)
    per: Period = "month"
    action: Action = "stop"
    strict: bool = False
    warn_at: tuple[int, ...] = Field(default=(80,), max_length=10)

    @field_validator("warn_at")
    @classmethod
    def _percentages(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= one <= 100 for one in given):
            raise ValueError("warn_at holds percentages from 1 to 100, such as 50, 80")
        return tuple(sorted(set(given)))

    @field_validator("sku")
    @classmethod
    def _canonical(cls, name: str | None) -> str | None:
        try:
            return None if name is None else canonical_sku(name)
        except UserError:
            return name  # the catalogue does not know every device; the API knows which it has prices for

    @model_validator(mode="after")
    def _one_limit(self) -> Budget:
        if (self.money_nano is None) == (self.gpu_seconds is None):
            raise ValueError(
                "give either money_nano or gpu_seconds: a limit is a sum of money or a number of GPU-seconds"
            )
        if self.strict and self.action != "stop":
            raise ValueError("strict goes with action=stop: what only warns holds nothing back")
        return self


class BudgetView(Reply):
    """A budget and how it stands: `used`, `held` (set aside for what runs) and `limit` in nano-units or GPU-seconds.

    The figures of a budget that covers other projects as well are for admins; others see its state. `until` is when the
    period ends.
    """

    name: Name
    covers: str
    limit: int
    unit: str
    sku: str | None = None
    per: Period
    action: Action
    strict: bool = False
    warn_at: tuple[int, ...] = ()
    used: int | None = None
    held: int | None = None
    percent: float | None = None
    state: Literal["open", "warned", "spent"] = "open"
    since: str | None = None
    until: str | None = None
    set_by: str = ""
    updated_at: str


def parse_limit(value: Any, what: str, currency: str = "USD") -> dict[str, int | str]:
    """Read `"500 USD"` or `"200 GPU-hours"` into the fields of a Budget; UserError says how to write it."""
    if isinstance(value, str) and "gpu" in value.lower():
        match = _HOURS.fullmatch(value.strip())
        if match is None:
            raise UserError(f'{what}{value!r} is no number of GPU-hours. Write "200 GPU-hours".')
        seconds = Decimal(match["amount"].replace(",", "").replace("_", "")) * _UNIT_S[match["unit"][0].lower()]
        if seconds <= 0 or seconds != seconds.to_integral_value():
            raise UserError(f"{what}{value!r} must be above zero and whole GPU-seconds.")
        return {"gpu_seconds": int(seconds)}
    try:
        return {"money_nano": parse_money_nano(value, what, currency), "currency": currency}
    except UserError as error:
        raise UserError(f'{error} GPU-hours are written "200 GPU-hours".') from None


def amount(value: int, unit: str) -> str:
    """Write an amount of a limit: money with four decimals, GPU-seconds as they are or as hours."""
    if unit != "GPU-seconds":
        return f"{value / 1e9:.4f} {unit}"
    return f"{value} GPU-seconds" if value < 3600 else f"{value / 3600:.2f} GPU-hours"
