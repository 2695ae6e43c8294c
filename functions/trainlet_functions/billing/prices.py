"""Price lists: a YAML file that people edit, read into integer nano-units per GPU-second.

An hour price such as 3.95 is 1,097,222.2... nano-units per second: the second price is the rounded integer, and the hour
price is only shown. A price may also be given as the integer itself. Versions are effective from a whole second on.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from trainlet.core.errors import UserError
from trainlet.core.gpus import canonical_sku
from trainlet.core.models import Value

PACKAGED = Path(__file__).parent / "prices.yaml"
_NANO = 1_000_000_000
_HOUR_S = 3600


def _money(value: Any) -> Decimal:
    if isinstance(value, float):
        raise ValueError("write the price as a quoted string, such as '3.95', so that no digit is lost")
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise ValueError(f"{value!r} is not an amount of money")
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not an amount of money") from error


HourPrice = Annotated[Decimal, BeforeValidator(_money), Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceVersion(Value):
    """One version of the price list: the prices of each SKU from `effective_from` on.

    A file may give integers under `nano_per_gpu_second` instead; here they are the hour prices that they stand for,
    exactly, because an hour of whole nano-units is a short decimal.
    """

    version: str = Field(min_length=1, max_length=64)
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    effective_from: datetime
    per_gpu_hour: dict[str, HourPrice]

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, raw: Any) -> Any:
        if not isinstance(raw, dict) or "nano_per_gpu_second" not in raw:
            return raw
        given, hours = raw["nano_per_gpu_second"], raw.get("per_gpu_hour", {})
        if not isinstance(given, dict) or not isinstance(hours, dict):
            raise ValueError("nano_per_gpu_second and per_gpu_hour map a SKU to its price")
        for sku, nano in given.items():
            if isinstance(nano, bool) or not isinstance(nano, int):
                raise ValueError(f"nano_per_gpu_second.{sku}: {nano!r} is not a whole number")
            if sku in hours:
                raise ValueError(f"{sku} has a price per hour and one per second; keep one of them")
        exact = {sku: Decimal(nano * _HOUR_S) / _NANO for sku, nano in given.items()}
        rest = {name: value for name, value in raw.items() if name != "nano_per_gpu_second"}
        return {**rest, "per_gpu_hour": {**hours, **exact}}

    @field_validator("effective_from")
    @classmethod
    def _whole_second(cls, at: datetime) -> datetime:
        if at.microsecond:
            raise ValueError("prices change on whole seconds; drop the fraction")
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if at.utcoffset() != timedelta(0):
            raise ValueError("write the time in UTC, such as 2026-01-01T00:00:00Z")
        return at

    @field_validator("per_gpu_hour")
    @classmethod
    def _by_sku(cls, prices: dict[str, Decimal]) -> dict[str, Decimal]:
        for name in prices:
            try:
                sku = canonical_sku(name)
            except UserError:
                continue  # a device that the catalogue does not know is metered under its own name
            if sku != name:
                raise ValueError(f"{name!r} is another name of {sku!r}; prices are kept by SKU")
        return prices

    @property
    def from_s(self) -> int:
        """Return the UTC second from which this version holds."""
        return int(self.effective_from.timestamp())

    def nano_per_second(self, sku: str) -> int | None:
        """Return the price of one GPU-second in nano-units, or None for a SKU that has none."""
        hour = self.per_gpu_hour.get(sku)
        if hour is None:
            return None
        return int((hour * _NANO / _HOUR_S).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


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
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader that refuses duplicates
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise UserError(f"The price list {path} cannot be read: {error}. Correct or remove the file.") from error
    versions = [
        _version(path, number, entry) for number, entry in enumerate(raw if isinstance(raw, list) else [raw], 1)
    ]
    if not versions:
        raise UserError(f"The price list {path} is empty. Copy {PACKAGED.name} of the package and edit it.")
    versions.sort(key=lambda version: version.from_s)
    names = [version.version for version in versions]
    for before, after in itertools.pairwise(versions):
        if before.from_s == after.from_s or names.count(after.version) > 1:
            raise UserError(
                f"The price list {path}: {before.version!r} and {after.version!r} overlap; give each its own name and start."
            )
        if before.currency != after.currency:
            raise UserError(f"The price list {path} changes its currency at {after.version!r}; keep one currency.")
    return PriceList(versions=tuple(versions))


def load(home: Path | None = None) -> PriceList:
    """Return the home's `prices.yaml`, else the packaged example list."""
    own = None if home is None else home / "prices.yaml"
    return read(own if own is not None and own.is_file() else PACKAGED)


class _Loader(yaml.SafeLoader):
    """YAML in which a key may be given once: a second price of a SKU must not win silently."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
            seen.add(str(key))
        return super().construct_mapping(node, deep)


def _version(path: Path, number: int, entry: Any) -> PriceVersion:
    try:
        return PriceVersion.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "top"
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"The price list {path}, version {number}, {place}: {message}.") from error
