"""Read an export again: its manifest, its files as columns, and the rows of the ledger that its charges stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainlet.core.bills import Row
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore
from trainlet_functions.exports import charges, columns, formats, frames
from trainlet_functions.exports.manifests import MANIFEST, Manifest, Part

Columns = dict[str, list[Any]]
_READ: dict[str, Callable[[str], Any]] = {
    "decimal": formats.number,
    "time": formats.seconds,
    "integer": lambda text: int(text) if text.isascii() and text.removeprefix("-").isdigit() else text,
    "boolean": lambda text: {"true": True, "false": False}.get(text, text),
}


def folders(store: ObjectStore) -> list[str]:
    """Return the exports in a store, by their folders."""
    found = [one.key for one in store.list("") if one.key == MANIFEST or one.key.endswith(f"/{MANIFEST}")]
    return [key.removesuffix(MANIFEST).rstrip("/") for key in found]


def manifest(store: ObjectStore, folder: str) -> Manifest:
    """Return the manifest of an export; raises UserError where it is none."""
    try:
        return Manifest.model_validate_json(store.get(key(folder, MANIFEST)))
    except (ValidationError, FileNotFoundError) as error:
        raise UserError(f"{store.url}/{key(folder, MANIFEST)} is no manifest of a billing export: {error}.") from error


def key(folder: str, name: str) -> str:
    """Return the key of a file of an export."""
    return f"{folder}/{name}" if folder else name


def fetch(store: ObjectStore, folder: str, part: Part, path: Path) -> str | None:
    """Bring a part to a path; return what is wrong with it, or None."""
    try:
        store.get_file(key(folder, part.name), path)
    except FileNotFoundError:
        return "is missing"
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != part.sha256:
        return f"has the sha256 {sha256}, not the one that it was written with"
    return None


def batches(path: Path, kind: str, version: str) -> Iterator[tuple[Columns, int]]:
    """Yield the columns of a file in batches, as rules look at them: texts, nano-units, UTC seconds, None.

    What cannot be read as its type stays a text.
    """
    known = {column.name: column for column in columns.exported(version)}
    for batch in frames.read(path, kind):
        found: Columns = {}
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            column = known.get(name)
            found[name] = array.to_pylist() if column is None else values(column, array, as_text=kind == "csv")
        yield found, batch.num_rows


def values(column: columns.Column, array: Any, *, as_text: bool) -> list[Any]:
    """Return a column as plain values."""
    if not as_text:
        return frames.plain(column, array)
    read = _READ.get(column.kind)
    texts: list[str | None] = array.to_pylist()
    if read is None:
        return list(texts)
    known: dict[str | None, Any] = {None: None}
    for text in set(texts):
        if text is not None:
            known[text] = read(text)
    return [known[text] for text in texts]


def rows(found: Mapping[str, Sequence[Any]], count: int) -> Iterator[Row]:
    """Yield the rows of the ledger that a batch of charges stands for; raises UserError where they cannot be some."""
    missing = [name for name in charges.NEEDED if name not in found]
    if missing:
        raise UserError(
            f"The columns {', '.join(missing)} are missing: the charges cannot be compared with the ledger."
        )
    for one in zip(*(found[name] for name in charges.NEEDED), strict=True):
        yield charges.row(dict(zip(charges.NEEDED, one, strict=True)))
