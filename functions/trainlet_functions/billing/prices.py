"""Price versions: integer nano-units of a currency per device-second, per SKU, phase and kind of rate.

An hour price such as 3.95 is 1,097,222.2... nano-units per second: the second price is the rounded integer, and the hour
price is only shown. A price may also be given as the integer itself. A version holds from a whole second on, until the
next one begins; none is ever changed (`trainlet_functions.billing.book` keeps them).
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from trainlet.core.durations import nearest
from trainlet.core.errors import UserError
from trainlet.core.gpus import canonical_sku
from trainlet.core.models import Value, canonical_json, sha256_hex
from trainlet.core.wire import Rate

NANO = 1_000_000_000
HOUR_S = 3600
Phase = Literal["pull", "setup", "run", "idle", "drain", "lost"]
PHASES: tuple[str, ...] = get_args(Phase)
ALL_SKUS = "*"
_MOST_KNOWN = 10_000


def _number(value: Any) -> Decimal:
    if isinstance(value, float):
        raise ValueError("write it as a quoted string, such as '3.95', so that no digit is lost")
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise ValueError(f"{value!r} is not a number")
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number, such as '3.95'") from error


HourPrice = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Factor = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=100, allow_inf_nan=False)]
Percent = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=100, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """What one second of a whole device costs: by the list, and for this project (negotiated, committed)."""

    list_nano: int
    price_nano: int


class PriceVersion(Value):
    """One version of the price list: the prices of each SKU from `effective_from` on.

    `phases` are factors on the price (`pull` and `lost` are 0 unless said otherwise, every other one 1);
    `phase_per_gpu_hour` prices a phase of one SKU outright. `discounts` map a project to a percentage, or to one per SKU
    (`*`: every other). A file may give integers under `nano_per_gpu_second` instead of hour prices; here they are the hour
    prices that they stand for, exactly, because an hour of whole nano-units is a short decimal.
    """

    version: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    effective_from: datetime
    per_gpu_hour: dict[str, HourPrice]
    spot_per_gpu_hour: dict[str, HourPrice] = {}
    committed_per_gpu_hour: dict[str, HourPrice] = {}
    phases: dict[Phase, Factor] = {}
    phase_per_gpu_hour: dict[str, dict[Phase, HourPrice]] = {}
    discounts: dict[str, dict[str, Percent]] = {}

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        rest = dict(raw)
        given, hours = rest.pop("nano_per_gpu_second", {}), rest.get("per_gpu_hour", {})
        if given:
            if not isinstance(given, dict) or not isinstance(hours, dict):
                raise ValueError("nano_per_gpu_second and per_gpu_hour map a SKU to its price")
            for sku, nano in given.items():
                if isinstance(nano, bool) or not isinstance(nano, int):
                    raise ValueError(f"nano_per_gpu_second.{sku}: {nano!r} is not a whole number")
                if sku in hours:
                    raise ValueError(f"{sku} has a price per hour and one per second; keep one of them")
            exact = {sku: Decimal(nano * HOUR_S) / NANO for sku, nano in given.items()}
            rest["per_gpu_hour"] = {**hours, **exact}
        discounts = rest.get("discounts")
        if isinstance(discounts, dict):
            rest["discounts"] = {
                project: one if isinstance(one, dict) else {ALL_SKUS: one} for project, one in discounts.items()
            }
        for phase in rest.get("phases") or ():
            if phase not in PHASES:
                raise ValueError(f"phases: {phase!r} is no phase. {nearest(str(phase), PHASES)}")
        return rest

    @field_validator("effective_from")
    @classmethod
    def _whole_second(cls, at: datetime) -> datetime:
        if at.microsecond:
            raise ValueError("prices change on whole seconds; drop the fraction")
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if at.utcoffset() != timedelta(0):
            raise ValueError("write the time in UTC, such as 2026-01-01T00:00:00Z")
        return at

    @field_validator("per_gpu_hour", "spot_per_gpu_hour", "committed_per_gpu_hour", "phase_per_gpu_hour")
    @classmethod
    def _by_sku(cls, prices: dict[str, Any]) -> dict[str, Any]:
        for name in prices:
            _check_sku(name)
        return prices

    @field_validator("discounts")
    @classmethod
    def _discounts_by_sku(cls, discounts: dict[str, dict[str, Percent]]) -> dict[str, dict[str, Percent]]:
        for of_project in discounts.values():
            for name in of_project:
                if name != ALL_SKUS:
                    _check_sku(name)
        return discounts

    @model_validator(mode="after")
    def _known_skus(self) -> PriceVersion:
        for field in ("spot_per_gpu_hour", "committed_per_gpu_hour", "phase_per_gpu_hour"):
            for sku in getattr(self, field):
                if sku not in self.per_gpu_hour:
                    raise ValueError(f"{field}.{sku}: give {sku} a price under per_gpu_hour, too: its list price")
        return self

    @functools.cached_property
    def from_s(self) -> int:
        """Return the UTC second from which this version holds."""
        return int(self.effective_from.timestamp())

    def digest(self) -> str:
        """Return the sha256 of what this version says."""
        return sha256_hex(canonical_json(self.model_dump(mode="json")))

    def nano_per_second(self, sku: str) -> int | None:
        """Return the list price of one device-second in nano-units, or None for a SKU that has none."""
        hour = self.per_gpu_hour.get(sku)
        return None if hour is None else _nano(hour)

    def unit_price(self, sku: str, phase: str, rate: Rate = "standard", project: str = "") -> UnitPrice | None:
        """Return both prices of one second, or None for a SKU (or a rate of it) that has none.

        Each is rounded once, to a whole nano-unit; spot has a list price of its own, a commitment is negotiated.
        """
        key = (sku, phase, rate, project)
        if key not in self.known:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[key] = self._unit_price(sku, phase, rate, project)
        return self.known[key]

    @functools.cached_property
    def known(self) -> dict[tuple[str, str, str, str], UnitPrice | None]:
        """Return the unit prices that were asked for: a version never changes, and decimals are slow."""
        return {}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> PriceVersion:
        """Return a changed copy, which knows no prices of this one."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("known", "from_s"):
            copied.__dict__.pop(name, None)
        return copied

    def _unit_price(self, sku: str, phase: str, rate: Rate, project: str) -> UnitPrice | None:
        hours = self.spot_per_gpu_hour if rate == "spot" else self.per_gpu_hour
        hour = hours.get(sku)
        agreed_hour = self.committed_per_gpu_hour.get(sku) if rate == "committed" else hour
        if hour is None or agreed_hour is None:
            return None
        outright = self.phase_per_gpu_hour.get(sku, {}).get(phase)  # type: ignore[call-overload]
        listed, agreed = _nano(hour), _nano(agreed_hour)
        if outright is not None:
            listed = agreed = _nano(outright)
        else:
            factor = self.phases.get(phase, _FREE.get(phase, Decimal(1)))  # type: ignore[call-overload]
            listed, agreed = _rounded(listed * factor), _rounded(agreed * factor)
        discounts = self.discounts.get(project, {})
        percent = discounts.get(sku, discounts.get(ALL_SKUS))
        if percent is not None:
            agreed = _rounded(agreed * (100 - percent) / 100)
        return UnitPrice(listed, agreed)


_FREE: dict[str, Decimal] = {"pull": Decimal(0), "lost": Decimal(0)}  # what the platform needs for itself, or has lost


class PriceList(Value):
    """All versions, the oldest first."""

    versions: tuple[PriceVersion, ...] = Field(min_length=1)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> PriceList:
        """Return a changed copy, with cuts of its own."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("cuts_s", None)
        return copied

    def at(self, second: int) -> PriceVersion:
        """Return the version that holds at a UTC second; before the first one, the first holds."""
        return self.versions[bisect.bisect_right(self.cuts_s, second)]

    @functools.cached_property
    def cuts_s(self) -> list[int]:
        """Return the seconds at which a new version begins."""
        return [version.from_s for version in self.versions[1:]]

    @property
    def currency(self) -> str:
        """Return the one currency of all versions."""
        return self.versions[-1].currency


def _check_sku(name: str) -> None:
    try:
        sku = canonical_sku(name)
    except UserError:
        return  # a device that the catalogue does not know is metered under its own name
    if sku != name:
        raise ValueError(f"{name!r} is another name of {sku!r}; prices are kept by SKU")


def _nano(hour: Decimal) -> int:
    return _rounded(hour * NANO / HOUR_S)


def _rounded(value: Decimal) -> int:
    return int(value.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))
