"""What a task hands back to KFP's launcher: parameter files, artifacts at the places it provided, and their metadata.

The launcher takes an artifact's metadata from the executor output and uploads whatever lies at its path; an artifact
without a file is fine.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlet.core import artifacts, codecs
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.protocols import ObjectStore
from trainlet_pipelines.pods import shapes
from trainlet_pipelines.pods.inputs import REFERENCE, ExecutorInput, File
from trainlet_pipelines.pods.orders import Export, Order

INLINE_BYTES = 8 * 1024
"""A result whose JSON is longer goes to the store: KFP refuses parameters of more than 10,000 bytes."""


class Outputs:
    """Writes the outputs of one task; `close` writes what tells KFP about them."""

    def __init__(self, executor: ExecutorInput, order: Order, store: ObjectStore) -> None:
        self._wanted, self._order, self._store = executor.outputs, order, store
        self._described: dict[str, Any] = {}

    def result(self, value: Any) -> None:
        """Write every part of the result that the order names."""
        for name, export in self._order.outputs.items():
            if export.kind in ("metrics", "report", "curve"):
                continue
            part = codecs.select(value, export.path, self._store) if export.path else value
            form, _, kind = export.kind.partition(":")
            if kind:
                self._artifact(name, part, content=form == "file")
            else:
                self._parameter(name, self._text(name, part, export))

    def metrics(self, values: Mapping[str, float | str]) -> None:
        """Write numbers for KFP's page; what is not finite is no JSON, and so becomes text."""
        plain = {
            name: value if isinstance(value, str) or math.isfinite(value) else str(value)
            for name, value in values.items()
        }
        self._describe(self._named("metrics"), plain)

    def document(self, kind: str, text: str) -> None:
        """Write the `report` or the `curve`."""
        name = self._named(kind)
        file = self._file(name) if name is not None else None
        if file is None:
            return
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(text)
        self._describe(name, {})

    def close(self) -> None:
        """Write the executor output, last."""
        path = Path(self._wanted.output_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"artifacts": self._described}))

    def _named(self, kind: str) -> str | None:
        return next((name for name, one in self._order.outputs.items() if one.kind == kind), None)

    def _file(self, name: str) -> File | None:
        files = self._wanted.artifacts.get(name)
        return files.artifacts[0] if files is not None and files.artifacts else None

    def _describe(self, name: str | None, metadata: Mapping[str, Any]) -> None:
        file = None if name is None else self._file(name)
        if name is not None and file is not None:
            described = {"name": file.name, "uri": file.uri, "metadata": dict(metadata)}
            self._described[name] = {"artifacts": [described]}

    def _parameter(self, name: str, text: str) -> None:
        if name not in self._wanted.parameters:
            raise PlatformError(f"KFP's executor input has no output {name!r}: compile the pipeline again.")
        path = Path(self._wanted.parameters[name].output_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _text(self, name: str, part: Any, export: Export) -> str:
        if export.kind == "encoded":
            return encoded_text(part, self._store)
        value = codecs.decode(part, self._store)
        if export.kind == "list" and isinstance(value, list | tuple | set | frozenset):
            value = list(value)
        if export.kind in shapes.SCALARS:
            value = _scalar(value, export.kind, name)
        try:
            return value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"The result {name!r} is no JSON that KFP can pass on: {error}.") from None

    def _artifact(self, name: str, part: Any, *, content: bool) -> None:
        file = self._file(name)
        if file is None:
            return
        value = codecs.decode(part, self._store, workdir=Path(file.path).parent / ".trainlet")
        if value is None:
            self._describe(name, {})
            return
        if isinstance(value, Path):
            value = artifacts.Artifact.from_path(value)
        if not isinstance(value, artifacts.Artifact):
            raise UserError(
                f"The result is a {type(value).__name__}, but a KFP component takes it as a file. "
                "Return tl.Dataset, tl.Model or tl.Artifact from the step."
            )
        reference = value.store(self._store)
        text = encoded_text(part, self._store)
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if not content:
            file.path.write_text(text)
        elif value.path.is_dir():
            shutil.copytree(value.path, file.path, dirs_exist_ok=True)
        else:
            shutil.copyfile(value.path, file.path)
        about = {"digest": reference.digest, "size_bytes": reference.size_bytes, REFERENCE: text}
        self._describe(name, {**_plain_metadata(value.metadata), **about})


def encoded_text(value: Any, store: ObjectStore) -> str:
    """Return the JSON text of an encoded value; a long one is a reference to the store."""
    moved = codecs.offload(value, store, INLINE_BYTES)
    return json.dumps(moved, separators=(",", ":"), allow_nan=False)


def _scalar(value: Any, kind: str, name: str) -> Any:
    """Return the result as the scalar that KFP was told; raises UserError when it is another thing."""
    number = isinstance(value, int | float) or hasattr(value, "item")
    if kind == "float" and number and math.isfinite(float(value)):
        return float(value)
    if kind == "int" and number and float(value).is_integer():
        return int(value)
    if kind == "bool" and (isinstance(value, bool) or (hasattr(value, "item") and isinstance(value.item(), bool))):
        return bool(value)
    if kind == "str" and isinstance(value, str):
        return value
    raise UserError(f"The result {name!r} is {value!r}, which KFP cannot pass on as {kind}. Correct the annotation.")


def _plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as KFP's page shows it: scalars as they are, the rest as JSON text."""
    return {
        name: value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
        for name, value in metadata.items()
    }
