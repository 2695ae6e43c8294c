"""Bills: the rows of the billing ledger, invoices and periods, as the API sends them.

A row is a stretch of whole seconds of one lease that crosses no hour, no period and no price change, or the one rounding
of an invoice. Money is integers: nano-units of the currency. A row that corrects a closed period names the row it takes
back, and is booked where it was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from trainlet.core.errors import UserError
from trainlet.core.models import Reply, Request

FULL_SHARE = 5040  # divisible by 1-10, 12, 14, 15, 16, 18, 20, 21, 24, 28
EVERY_PROJECT = "*"
RowKind = Literal["usage", "reversal", "correction", "rounding"]
PeriodState = Literal["open", "closing", "closed"]


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """A month in UTC, the unit of invoices."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Period:
        """Read `2026-07`; raises UserError otherwise."""
        found = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", text, re.ASCII)
        if found is None or not 2000 <= int(found[1]) <= 9998:
            raise UserError(f"{text[:40]!r} is no billing period; write a month (UTC) such as 2026-07.")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, second: int) -> Period:
        """Return the period that a UTC second is in."""
        at = datetime.fromtimestamp(second, UTC)
        return cls(at.year, at.month)

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"

    @property
    def next(self) -> Period:
        """Return the period after this one."""
        return Period(self.year + 1, 1) if self.month == 12 else Period(self.year, self.month + 1)

    @property
    def start_s(self) -> int:
        """Return the first second."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp())

    @property
    def end_s(self) -> int:
        """Return the first second after it."""
        return self.next.start_s


_NO_TAGS: Mapping[str, str] = MappingProxyType({})


class Row(NamedTuple):
    """One row of the billing ledger, of which there are millions: a tuple is made and read several times as fast.
    Prices are per second of the whole device, None where the SKU has none.

    A `reversal` takes the row `corrects` back, with negative costs; a `correction` is what holds instead, or usage that
    came too late for its period (`corrected_period`).
    """

    id: str
    project: str
    period: str
    kind: RowKind
    start_s: int
    end_s: int
    currency: str
    cost_nano: int | None
    list_cost_nano: int | None
    lease: str = ""
    run_id: str = ""
    task: str = ""
    epoch: int = 0
    function: str = ""
    device: str = ""
    sku: str = ""
    virtual: bool = False
    rate: str = "standard"
    share: int = FULL_SHARE
    part: int = 0
    tags: Mapping[str, str] = _NO_TAGS
    phase: str = ""
    version: str = ""
    price_nano: int | None = None
    list_price_nano: int | None = None
    corrects: str = ""
    corrected_period: str = ""

    @property
    def seconds(self) -> int:
        """Return the whole seconds that this row adds; a reversal takes them away."""
        if self.kind == "rounding":
            return 0
        length = self.end_s - self.start_s
        return -length if self.kind == "reversal" else length

    def cost_between(self, begin_s: int, end_s: int) -> int:
        """Return the part of its cost in [begin_s, end_s), in nano-units; the parts of any cut sum to the cost exactly."""
        cost, length = self.cost_nano or 0, self.end_s - self.start_s
        return cost * (end_s - self.start_s) // length - cost * (begin_s - self.start_s) // length

    @property
    def unpriced(self) -> bool:
        """Say whether this is usage that has no price."""
        return self.kind != "rounding" and self.price_nano is None

    def data(self) -> dict[str, Any]:
        """Return JSON data."""
        return {**self._asdict(), "tags": dict(self.tags)}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Row:
        """Make a row of JSON data; what a newer API adds is left out."""
        if data.keys() <= FIELDS:
            return cls(**data)
        return cls(**{name: value for name, value in data.items() if name in FIELDS})


def invoice_id(project: str, period: str) -> str:
    """Return the number of the one invoice that a project gets for a period."""
    return f"INV-{period}-{project}"


FIELDS = frozenset(Row._fields)


class Invoice(Reply):
    """What a project owes for a closed period: its rows, and one rounding to the currency's minor unit."""

    id: str
    project: str
    rows: int
    seconds: int
    metered_nano: int
    rounding_nano: int
    payable_nano: int
    list_nano: int
    digest: str
    unpriced_skus: list[str] = []


class PeriodView(Reply):
    """A billing period. Its `digest` is that of every row of every invoice, and never changes once it is closed."""

    period: str
    state: PeriodState
    currency: str
    closing_at: str | None = None
    closed_at: str | None = None
    digest: str | None = None
    invoices: list[Invoice] = []


class PeriodList(Reply):
    """`GET /v1/billing/periods`, the oldest first."""

    items: list[PeriodView]


class ClosePeriod(Request):
    """`POST /v1/billing/periods/{period}:close`. `unpriced`: also while some usage has no price yet."""

    unpriced: bool = False


class Snapshot(Reply):
    """The first line of `GET /v1/billing/rows`: what the rows after it are, at one moment of the ledger.

    `digest` is known where the period is closed; `as_of` is when it was, else the moment of the snapshot.
    """

    period: str
    state: PeriodState
    scope: str
    currency: str
    as_of: str
    digest: str | None = None


class SnapshotEnd(Reply):
    """The last line: without it, or where it disagrees, a snapshot was cut off."""

    rows: int
    cost_nano: int
    digest: str


class UsageTotal(Reply):
    """What was used in one stretch of time by one group: `parts` are device-seconds in 5040 parts.

    `unpriced_s` of the device-seconds have no price, so no cost counts them. Of `known_ms` somebody saw how busy the
    devices were, and `used_ms` is that time times their utilization; samples come by the hour, and are spread evenly over it.
    """

    start_s: int
    end_s: int
    start: str
    group: dict[str, str] = {}
    parts: int
    cost_nano: int
    unpriced_s: int = 0
    known_ms: int = 0
    used_ms: int = 0

    @property
    def gpu_seconds(self) -> float:
        """Return the device-seconds as people read them."""
        return self.parts / FULL_SHARE


class UsageTotals(Reply):
    """`GET /v1/usage/totals`: sums in the order of time. `next` is the second to go on from, where there is more."""

    items: list[UsageTotal]
    start_s: int
    end_s: int
    currency: str
    next: int | None = None
