"""The price book: the versions that were applied, in the database, none ever changed or taken away.

What a person edits is a YAML file; `difference` says what applying it would add, and `apply` adds it. A version that begins in
the past changes bills that people have seen, so it has to be asked for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from trainlet.core import wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import UserError
from trainlet_functions.billing import pricefiles
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.billing.tables import price_versions

if TYPE_CHECKING:
    from trainlet_functions.state.database import Transaction

_COUNT = sa.select(sa.func.count()).select_from(price_versions)
_SHOWN = ("per_gpu_hour", "spot_per_gpu_hour", "committed_per_gpu_hour", "phases", "phase_per_gpu_hour", "discounts")


class Book:
    """Reads the price book; while it is empty, the list that it was made with applies.

    Versions are only ever added, so their number says whether what was read before is still all there is.
    """

    def __init__(self, seed: PriceList) -> None:
        self.seed = seed
        self._lock = threading.Lock()
        self._known: tuple[int, PriceList] = (0, seed)

    def current(self, conn: Connection) -> PriceList:
        """Return all versions as this transaction sees them."""
        count = conn.execute(_COUNT).scalar_one()
        with self._lock:
            known = self._known
        if known[0] == count:
            return known[1]
        bodies = conn.execute(sa.select(price_versions.c.body).order_by(price_versions.c.from_s)).scalars()
        listed = (
            PriceList(versions=tuple(PriceVersion.model_validate_json(body) for body in bodies)) if count else self.seed
        )
        with self._lock:
            self._known = (count, listed)
        return listed


def settle(tx: Transaction, by: str) -> None:
    """Write the list that this process was made with into an empty book, so that bills stay when that list changes."""
    if not tx.conn.execute(_COUNT).scalar_one():
        _insert(tx, tx.prices.versions, by)


def difference(tx: Transaction, given: PriceList) -> wire.PriceChanges:
    """Say what applying a list would add; raises UserError where it contradicts a version that was applied."""
    applied = tx.prices.versions if tx.conn.execute(_COUNT).scalar_one() else ()
    known = {version.version: version for version in applied}
    new: list[PriceVersion] = []
    for version in given.versions:
        before = known.get(version.version)
        if before is None:
            new.append(version)
        elif before.digest() != version.digest():
            raise UserError(
                f"Version {version.version!r} was applied with other content ({', '.join(_parts(before, version))}). Prices "
                "are never changed: give the new prices a version and a start of their own."
            )
    pricefiles.ordered([*applied, *new], "with what was applied")
    return wire.PriceChanges(
        versions=[
            wire.PriceChange(
                version=version.version,
                effective_from=rfc3339(version.from_s * 10**9),
                changes=_changes(_before(applied, version), version),
            )
            for version in new
        ]
    )


def apply(tx: Transaction, given: PriceList, by: str, *, retroactive: bool = False) -> wire.PriceChanges:
    """Add the versions that are new, and return them. Applying the same list again adds nothing."""
    changes = difference(tx, given)
    names = {change.version for change in changes.versions}
    new = [version for version in given.versions if version.version in names]
    for version in new:
        when = rfc3339(version.from_s * 10**9)
        if version.from_s * 10**9 < tx.now_ns and not retroactive and tx.conn.execute(_COUNT).scalar_one():
            raise UserError(
                f"Version {version.version!r} begins {when}, in the past: it would change what was shown as spent since. "
                "Give it a start in the future, or apply it with --retroactive."
            )
    _insert(tx, new, by)
    return changes


def _insert(tx: Transaction, versions: tuple[PriceVersion, ...] | list[PriceVersion], by: str) -> None:
    for version in versions:
        tx.insert(
            price_versions,
            version=version.version,
            from_s=version.from_s,
            body=version.model_dump_json(),
            applied_ns=tx.now_ns,
            applied_by=by,
        )


def _before(applied: tuple[PriceVersion, ...], version: PriceVersion) -> PriceVersion | None:
    earlier = [one for one in applied if one.from_s < version.from_s]
    return max(earlier, key=lambda one: one.from_s, default=None)


def _parts(before: PriceVersion, after: PriceVersion) -> list[str]:
    return [name for name in PriceVersion.model_fields if getattr(before, name) != getattr(after, name)]


def _changes(before: PriceVersion | None, after: PriceVersion) -> list[str]:
    """Return one line per price or discount that differs from the version before."""
    lines: list[str] = []
    for field in _SHOWN:
        old, new = _flat(getattr(before, field) if before else {}), _flat(getattr(after, field))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                lines.append(f"{field} {name}: {old.get(name, 'none')} -> {new.get(name, 'none')}")
    return lines


def _flat(value: dict[str, object]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, one in value.items():
        if isinstance(one, dict):
            flat |= {f"{name}/{inner}": format(number, "f") for inner, number in one.items()}
        else:
            flat[name] = format(one, "f")  # type: ignore[str-format,unused-ignore]
    return flat
