"""Object stores: a directory of this machine, or S3-compatible storage.

The store holds what is too big or too important for the database: bundles, artifacts, checkpoints, archived logs. A
store must not know what it holds; keys and their meaning belong to the rooms that write them.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainlet.client.stores.directory import DirectoryStore
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore

__all__ = ["DirectoryStore", "open_store"]


def open_store(url: str) -> ObjectStore:
    """Open a store by URL: `file:///path`, a plain path, or `s3://bucket/prefix` (credentials from the environment).

    Raises UserError for a scheme that is not supported.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return DirectoryStore(Path(unquote(parts.path) if parts.scheme else url))
    if parts.scheme == "s3":
        from trainlet.client.stores.s3 import S3Store

        return S3Store(parts.netloc, parts.path.strip("/"))
    raise UserError(f"{url!r} is no store: use file:///path, a path, or s3://bucket/prefix.")
