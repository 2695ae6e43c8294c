"""Price lists: a YAML file that people edit, read into integer nano-units per GPU-second.

An hour price such as 3.95 is 1,097,222.2... nano-units per second: the second price is the rounded integer, and the hour
price is only shown. Versions are effective from a whole second on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from trainlet.core.errors import UserError
from trainlet.core.models import Value

PACKAGED = Path(__file__).parent / "prices.yaml"


def _money(value: Any) -> Decimal:
    if isinstance(value, float):
        raise ValueError("write the price as a quoted string, such as '3.95', so that no digit is lost")
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not an amount of money") from error


HourPrice = Annotated[Decimal, BeforeValidator(_money), Field(ge=0, allow_inf_nan=False)]


class PriceVersion(Value):
    """One version of the price list: the prices of each SKU from `effective_from` on."""

    version: str = Field(min_length=1, max_length=64)
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    effective_from: datetime
    per_gpu_hour: dict[str, HourPrice]

    @property
    def from_s(self) -> int:
        """Return the UTC second from which this version holds."""
        at = self.effective_from
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())

    def nano_per_second(self, sku: str) -> int | None:
        """Return the price of one GPU-second in nano-units, or None for a SKU that has none."""
        hour = self.per_gpu_hour.get(sku)
        if hour is None:
            return None
        return int((hour * 1_000_000_000 / 3600).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


class PriceList(Value):
    """All versions, the oldest first."""

    versions: tuple[PriceVersion, ...]

    def at(self, second: int) -> PriceVersion:
        """Return the version that holds at a UTC second; before the first one, the first holds."""
        found = self.versions[0]
        for version in self.versions:
            if version.from_s <= second:
                found = version
        return found

    @property
    def cuts_s(self) -> list[int]:
        """Return the seconds at which a new version begins."""
        return [version.from_s for version in self.versions[1:]]


def read(path: Path) -> PriceList:
    """Read a price list: one version, or a list of them. Raises UserError that names the place in the file."""
    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"The price list {path} cannot be read: {error}") from error
    entries: Sequence[Any] = raw if isinstance(raw, list) else [raw]
    versions: list[PriceVersion] = []
    for number, entry in enumerate(entries, 1):
        try:
            versions.append(PriceVersion.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UserError(f"The price list {path}, version {number}, {place or 'top'}: {first['msg']}.") from error
    if not versions:
        raise UserError(f"The price list {path} is empty. Copy {PACKAGED.name} of the package and edit it.")
    versions.sort(key=lambda version: version.from_s)
    for before, after in itertools.pairwise(versions):
        if before.from_s == after.from_s or before.version == after.version:
            raise UserError(
                f"The price list {path}: {before.version!r} and {after.version!r} overlap; give each its own start."
            )
        if before.currency != after.currency:
            raise UserError(f"The price list {path} changes its currency at {after.version!r}; keep one currency.")
    return PriceList(versions=tuple(versions))


def load(home: Path | None = None) -> PriceList:
    """Return the home's `prices.yaml`, else the packaged example list."""
    own = None if home is None else home / "prices.yaml"
    return read(own if own is not None and own.is_file() else PACKAGED)
