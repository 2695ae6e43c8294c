"""The webhook of a SeaweedFS filer: changes of files, of which those below `/buckets/` are objects.

A filer tells more than S3 has: folders, parts of uploads that are under way, changes of attributes. Only a change of an
object's content is told on. Shapes as a filer of version 4 sends them.
"""

from __future__ import annotations

import base64
from typing import Any

from trainlet_functions.triggers.adapters import shapes

_BUCKETS = "/buckets/"
_ETAG = "Seaweed-X-Amz-ETag"
WHAT = "notification of SeaweedFS"


class _Chunk(shapes.Shape):
    modified_ts_ns: int = 0


class _Attributes(shapes.Shape):
    file_size: int = 0
    mtime: int = 0
    mtime_ns: int = 0
    md5: str = ""


class _Entry(shapes.Shape):
    name: str = ""
    is_directory: bool = False
    chunks: list[_Chunk] = []
    attributes: _Attributes = _Attributes()
    extended: dict[str, str] = {}

    @property
    def size(self) -> int:
        """Return how many bytes the file has."""
        return self.attributes.file_size

    @property
    def etag(self) -> str:
        """Return the ETag that S3 shows, or the md5 for a file that came another way."""
        if _ETAG in self.extended:
            return _decoded(self.extended[_ETAG]).decode("ascii", "replace")
        return _decoded(self.attributes.md5).hex()

    @property
    def version(self) -> None:
        """Return no version: a filer keeps old ones as files of their own."""

    @property
    def sequencer(self) -> str:
        """Return when the content was written."""
        latest = max((chunk.modified_ts_ns for chunk in self.chunks), default=0)
        return str(latest or self.attributes.mtime * 1_000_000_000 + self.attributes.mtime_ns)


class _Change(shapes.Shape):
    old_entry: _Entry | None = None
    new_entry: _Entry | None = None
    new_parent_path: str = ""


class _Message(shapes.Shape):
    key: str
    event_type: str
    message: _Change


def read(form: Any) -> dict[str, Any] | None:
    """Return what changed of which object; None when no object's content did. Raises UserError."""
    found = shapes.read(_Message, form, WHAT)
    old, new = found.message.old_entry, found.message.new_entry
    path = found.key
    if new is not None and found.message.new_parent_path:  # renamed, or new: where it is now
        path = f"{found.message.new_parent_path.rstrip('/')}/{new.name}"
    bucket, _, key = path.removeprefix(_BUCKETS).partition("/")
    one = new or old
    hidden = bucket.startswith(".") or key.startswith(".uploads/")
    if not path.startswith(_BUCKETS) or not key or hidden or one is None or one.is_directory:
        return None
    if old is not None and new is not None and path == found.key and old.sequencer == new.sequencer:
        return None  # only its attributes changed
    kind = "objectremoved" if new is None else "objectcreated"
    about = {"kind": kind, "event": found.event_type, "bucket": bucket, "key": key, "one": one}
    return {**about, "origin": "seaweedfs"}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
