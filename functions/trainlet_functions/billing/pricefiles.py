"""Price lists as YAML files that people edit: one version, or a list of them. Every mistake is named with its place."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainlet.core.errors import UserError
from trainlet_functions.billing.prices import PriceList, PriceVersion

PACKAGED = Path(__file__).parent / "prices.yaml"


def read(path: Path) -> PriceList:
    """Read a price list. Raises UserError that names the place in the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The price list {path} cannot be read: {error}. Correct or remove the file.") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> PriceList:
    """Read a price list from text; `where` is what messages call it."""
    try:
        raw = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader that refuses duplicates
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"The price list {where} cannot be read: {error}. Correct or remove the file.") from error
    versions = [
        _version(where, number, entry) for number, entry in enumerate(raw if isinstance(raw, list) else [raw], 1)
    ]
    if not versions:
        raise UserError(f"The price list {where} is empty. Copy {PACKAGED.name} of the package and edit it.")
    return ordered(versions, where)


def ordered(versions: list[PriceVersion], where: str) -> PriceList:
    """Return the versions as a list, the oldest first; raises UserError where two overlap or the currency changes."""
    versions = sorted(versions, key=lambda version: version.from_s)
    names = [version.version for version in versions]
    for before, after in itertools.pairwise(versions):
        if before.from_s == after.from_s or names.count(after.version) > 1:
            raise UserError(
                f"The price list {where}: {before.version!r} and {after.version!r} overlap; "
                "give each its own name and start."
            )
        if before.currency != after.currency:
            raise UserError(
                f"The price list {where} changes its currency from {before.currency} to {after.currency} at "
                f"{after.version!r}; a bill has one currency. Keep {before.currency}."
            )
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


def _version(where: str, number: int, entry: Any) -> PriceVersion:
    try:
        return PriceVersion.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "top"
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(f"The price list {where}, version {number}, {place}: {message}.") from error
