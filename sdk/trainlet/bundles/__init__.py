"""Bundles: the code of a step as readable source files, found by analysing it, named by their content.

From a module the package it belongs to is shipped; from a script or notebook the function and what it really uses. There
is no pickle. What cannot travel is an error here, with the variable, its line and the fix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlet.bundles import extraction, locks, packaging
from trainlet.bundles.origins import Origins
from trainlet.core import bundles as format_
from trainlet.core.errors import UserError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet.core.specs import Entry


@dataclass(frozen=True)
class Bundle:
    """What is shipped. `files` shows the source; `imports` are third-party modules a worker preloads.

    `origins` is not shipped: it knows where a written module's lines stand in the file or cell that they come from.
    """

    digest: str
    data: bytes
    entry: Entry
    imports: tuple[str, ...]
    versions: dict[str, str]
    files: dict[str, str]
    lock: str | None
    origins: Origins | None = None

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.files))
        return f"<Bundle {self.digest[:12]} {self.entry.module}:{self.entry.qualname} ({names})>"

    @property
    def lock_sha256(self) -> str | None:
        """Return the sha256 of the lock, or None without one."""
        return None if self.lock is None else sha256_hex(self.lock.encode())


def build(function: Callable[..., Any], *, packages: Sequence[str] | Path | None = None) -> Bundle:
    """Build the bundle of a function. Raises UserError for what cannot travel and for packages that cannot be locked."""
    module = sys.modules.get(function.__module__)
    origin = getattr(module, "__file__", None)
    if function.__module__ == "__main__" or module is None or origin is None:
        sources = extraction.extract(function)
    else:
        if "<locals>" in function.__qualname__:
            sources = extraction.extract(function)
        else:
            sources = packaging.package(function, Path(origin))
    lock = locks.lock(packages) if packages else None
    files: dict[str, bytes] = dict(sources.files)
    if lock is not None:
        files[format_.LOCK] = lock.encode()
    manifest = format_.BundleManifest(
        entry=sources.entry,
        imports=(*sorted(sources.imports), *_of_ours(sources.files)),
        versions=dict(sorted(sources.versions.items())),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
    )
    files[format_.MANIFEST] = canonical_json(manifest.model_dump(mode="json"))
    total = sum(map(len, files.values()))
    if total > packaging.MAX_BYTES:
        biggest = ", ".join(
            f"{name} ({len(files[name]):,} bytes)" for name in sorted(files, key=lambda n: -len(files[n]))[:3]
        )
        raise UserError(
            f"The code of {function.__qualname__} takes {total:,} bytes, at most {packaging.MAX_BYTES:,} can be shipped. "
            f"The biggest: {biggest}. Move data out of the package and pass it as tl.Dataset."
        )
    digest, data = format_.pack(files)
    shown = {name: content.decode("utf-8", "replace") for name, content in files.items()}
    return Bundle(digest, data, sources.entry, manifest.imports, dict(manifest.versions), shown, lock, sources.origins)


def _of_ours(files: dict[str, bytes]) -> tuple[str, ...]:
    """Return the module of trainlet that decorates the shipped code: a warm worker has it imported before a task comes."""
    uses = any("trainlet" in packaging.imported(content) for name, content in files.items() if name.endswith(".py"))
    return ("trainlet.pipelines",) if uses else ()
