"""The code of an attempt on this machine: fetched once, checked each time, never what somebody left there since."""

from __future__ import annotations

from pathlib import Path

from trainlet.core import bundles
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore


def unpacked(store: ObjectStore, home: Path, digest: str, private: Path) -> Path:
    """Return a folder with exactly the files of a bundle.

    The folder is shared by all workers of this home. When a step has written into it, others may be using it still, so
    this attempt gets a copy of its own under `private`. Raises UserError when the store does not have the bundle.
    """
    shared = home / "cache" / "bundles" / digest
    if shared.exists() and _is_intact(shared, digest):
        return shared
    try:
        data = store.get(bundles.bundle_key(digest))
    except FileNotFoundError:
        raise UserError(f"The store has no bundle {digest[:12]}; submit the step again.") from None
    target = private / "bundle" if shared.exists() else shared
    target.parent.mkdir(parents=True, exist_ok=True)
    bundles.extract(data, digest, target)
    return target


def _is_intact(folder: Path, digest: str) -> bool:
    """Say whether the folder still has the content it is named by; compiled files of Python do not count."""
    files: dict[str, bytes] = {}
    try:
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    except OSError:
        return False
    return bundles.content_digest(files) == digest
