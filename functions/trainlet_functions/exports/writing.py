"""Write an export: parts named by their content, the schema, and last the manifest, which nothing ever overwrites."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainlet.core.bills import EVERY_PROJECT, Period, Row, Snapshot
from trainlet.core.errors import ConflictError
from trainlet.core.protocols import ObjectStore
from trainlet.core.sums import Sums
from trainlet_functions.batches import batches
from trainlet_functions.exports import charges, columns, frames, lines
from trainlet_functions.exports.manifests import MANIFEST, InvoiceSum, Manifest, Part, schema_file
from trainlet_functions.exports.parties import Parties

BATCH_ROWS = 20_000
PART_ROWS = 400_000
_SUMMED = ("BilledCost", "ListCost", "ChargePeriodStart", "ChargePeriodEnd")


@dataclass(frozen=True, slots=True)
class Written:
    """An export in its store. `new` is false where the same one was there already."""

    folder: str
    manifest: Manifest
    new: bool


@dataclass(slots=True)
class _Tally:
    """What is known of the rows that have passed."""

    sums: Sums = field(default_factory=Sums)
    invoices: dict[str, list[int]] = field(default_factory=dict)

    def add(self, batch: frames.Batch) -> None:
        """Count charges."""
        lot, kinds = batch.lot, batch.lot.examples
        costs, listed, starts, ends = (lot.own[name] for name in _SUMMED)
        if all(row.kind in ("usage", "correction") for row in kinds):
            seconds = sum(ends) - sum(starts)
        else:
            seconds = sum(row.seconds for row in lot.rows)
        unpriced = [row.sku for row in kinds if row.unpriced]
        self.sums.add_summed(
            len(lot.rows), seconds, sum(costs), sum(listed), unpriced, lines.of_rows(lot, batch.places)
        )
        names = lot.shared["InvoiceId"]
        if len(set(names)) == 1:
            self._invoice(names[0], len(lot.rows), sum(costs))
            return
        for place, cost in zip(lot.places, costs, strict=True):
            self._invoice(names[place], 1, cost)

    def _invoice(self, name: str, rows: int, cost: int) -> None:
        of = self.invoices.setdefault(name, [0, 0])
        of[0] += rows
        of[1] += cost


def write(
    store: ObjectStore,
    snapshot: Snapshot,
    rows: Iterable[Row],
    *,
    version: str = "1.2",
    parties: Parties | None = None,
    created_at: str,
    generator: str,
) -> Written:
    """Write an export of a snapshot; the same export of a closed period is left as it is.

    Raises ConflictError where another one of that closed period is there.
    """
    named, tally = parties or Parties(), _Tally()
    period = Period.parse(snapshot.period)
    schema_id, schema_body = schema_file(version, generator)
    with tempfile.TemporaryDirectory(prefix="trainlet-export-") as folder:
        parts = list(_parts(Path(folder), tally, rows, period, version, named))
        sums = tally.sums
        manifest = Manifest(
            focus_version=version,
            schema_id=schema_id,
            schema_file=f"schema-{schema_id}.json",
            period=snapshot.period,
            state=snapshot.state,
            provisional=snapshot.state != "closed",
            scope=snapshot.scope,
            currency=snapshot.currency,
            high_water=snapshot.as_of,
            period_digest=snapshot.digest,
            rows_digest=sums.digest,
            rows=sums.rows,
            seconds=sums.seconds,
            billed_nano=sums.cost_nano,
            list_nano=sums.list_nano,
            invoices=tuple(InvoiceSum(id=id, rows=n, billed_nano=nano) for id, (n, nano) in tally.invoices.items()),
            unpriced_skus=tuple(sorted(sums.unpriced)),
            parties=named,
            generator=generator,
            created_at=created_at,
            parts=tuple(part for part, _ in parts),
        )
        place = folder_of(manifest)
        existing = find(store, place)
        if existing is not None:
            return _same(store, place, existing, manifest)
        for part, path in parts:
            store.put_file(f"{place}/{part.name}", path)
    with contextlib.suppress(FileExistsError):
        store.create(f"{place}/{manifest.schema_file}", schema_body)
    try:
        store.create(f"{place}/{MANIFEST}", manifest.model_dump_json(indent=2).encode())
    except FileExistsError:  # somebody else was faster
        return _same(store, place, Manifest.model_validate_json(store.get(f"{place}/{MANIFEST}")), manifest)
    return Written(place, manifest, new=True)


def folder_of(manifest: Manifest) -> str:
    """Return where an export belongs: one place per closed period, one per moment of an open one."""
    whose = "all-projects" if manifest.scope == EVERY_PROJECT else f"project={manifest.scope}"
    place = f"focus-{manifest.focus_version}/{whose}/billing_period={manifest.period}"
    if not manifest.provisional:
        return place
    moment = "".join(one for one in manifest.high_water if one.isalnum())
    return f"{place}/open-{moment}-{manifest.rows_digest[:12]}"


def find(store: ObjectStore, folder: str) -> Manifest | None:
    """Return the manifest of an export, None where there is none."""
    try:
        return Manifest.model_validate_json(store.get(f"{folder}/{MANIFEST}"))
    except FileNotFoundError:
        return None


def _same(store: ObjectStore, folder: str, existing: Manifest, made: Manifest) -> Written:
    before, now = existing.promise(), made.promise()
    different = [f"{name} was {before[name]!r} and is {now[name]!r}" for name in now if before[name] != now[name]]
    if not different:
        return Written(folder, existing, new=False)
    raise ConflictError(
        f"{store.url}/{folder} has another export of {made.period} already: {'; '.join(different)}. A closed period is "
        "exported once. Look at both with `trainlet billing verify`; to keep both, export to another place."
    )


def _parts(
    folder: Path, tally: _Tally, given: Iterable[Row], period: Period, version: str, parties: Parties
) -> Iterator[tuple[Part, Path]]:
    """Write files of charges into a folder, each in every format; an export without rows has files without rows."""
    chosen, rows, number, ended = columns.exported(version), iter(given), 0, False
    while not ended:
        written = 0
        with contextlib.ExitStack() as stack:
            paths = {kind: folder / f"{number}.{kind}" for kind in frames.FORMATS}
            writers = [frames.writer(path, chosen, kind) for kind, path in paths.items()]
            for one in writers:
                stack.callback(one.close)
            for together in batches(rows, BATCH_ROWS):
                batch = frames.Batch(chosen, charges.lot(together, period, parties))
                tally.add(batch)
                for one in writers:
                    one.write(batch)
                written += len(together)
                if written >= PART_ROWS:
                    break
            else:
                ended = True
        if written or not number:
            for kind, path in paths.items():
                yield _part(path, kind, written)
        number += 1


def _part(path: Path, kind: str, rows: int) -> tuple[Part, Path]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    named = Part.model_validate(
        {
            "name": f"part-{sha256}.{kind}",
            "format": kind,
            "rows": rows,
            "size_bytes": path.stat().st_size,
            "sha256": sha256,
        }
    )
    return named, path
