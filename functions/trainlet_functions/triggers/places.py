"""Places that are looked at because they cannot notify: a folder of this machine, or a prefix of a bucket.

A place lists what it holds, a part at a time, and says of an object what its content is, so that the same content put
there again is the same event.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from trainlet.client.stores import s3
from trainlet.core.errors import AccessError, PlatformError, UserError

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """An object as a listing shows it. `mark` changes when the object does; `changed_ns` is when it came here."""

    key: str
    size_bytes: int
    mark: str
    changed_ns: int


class Place(Protocol):
    """Something that can be listed.

    An object counts when it has not changed for `settle_s`; its times may be told up to `skew_s` too early.
    """

    settle_s: float
    skew_s: float
    resumes: bool
    """Whether it lists in the order of its keys, so that a listing can go on after one."""

    def list(self, after: str = "") -> Iterator[Found]:
        """Yield every object after a key, without holding them all; raises PlatformError when it cannot be read."""
        ...

    def content(self, found: Found) -> str | None:
        """Return what stands for the content of an object; None when it is gone, or is still being written."""
        ...

    def about(self, found: Found) -> dict[str, Any]:
        """Return the data of its event."""
        ...


def open_place(url: str) -> Place:
    """Return the place of a URL; raises UserError for one that cannot be looked at."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return Folder(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return Bucket(parts.netloc, parts.path.strip("/"))
    raise UserError(f"{url!r} cannot be looked at: write file:///a/folder or s3://bucket/prefix.")


def check(url: str, *, embedded: bool) -> None:
    """Raise unless a project may have this place looked at with the API's own rights.

    On a person's own machine it may be any; elsewhere only buckets that TRAINLET_POLL_BUCKETS names, separated by commas.
    """
    open_place(url)
    if embedded:
        return
    allowed = [name.strip() for name in os.environ.get("TRAINLET_POLL_BUCKETS", "").split(",") if name.strip()]
    parts = urlsplit(url)
    if parts.scheme != "s3" or parts.netloc not in allowed:
        raise AccessError(
            f"This training API does not look at {url}. Its administrator names buckets in TRAINLET_POLL_BUCKETS; "
            f"it has {', '.join(allowed) or 'none'}. Or have the store send events."
        )


class Folder:
    """A folder of this machine with what is below it. Hidden files and unfinished ones are not there yet."""

    settle_s = 1.0
    skew_s = 0.05  # a tick of the kernel's clock
    resumes = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, after: str = "") -> Iterator[Found]:
        """Walk the folder, always all of it; what vanishes meanwhile is left out."""
        if not self._root.is_dir():
            raise PlatformError(f"The folder {self._root} is not there; it is looked at again.")
        folders = [self._root]
        while folders:
            try:
                entries = os.scandir(folders.pop())
            except FileNotFoundError:
                continue
            with entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                        continue
                    found = self._found(Path(entry.path))
                    if found is not None:
                        yield found

    def content(self, found: Found) -> str | None:
        """Return the sha256 of a file that did not change while it was read."""
        path = self._root / found.key
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while part := file.read(_READ_BYTES):
                    digest.update(part)
        except OSError:
            return None
        return digest.hexdigest() if self._found(path) == found else None

    def about(self, found: Found) -> dict[str, Any]:
        """Return where the file is, as a URL and as a path."""
        path = self._root / found.key
        return {"uri": path.as_uri(), "path": str(path), "key": found.key, "size_bytes": found.size_bytes}

    def _found(self, path: Path) -> Found | None:
        try:
            stat = path.stat()
            key = path.relative_to(self._root).as_posix()
            key.encode()
        except (OSError, UnicodeEncodeError):  # gone, a broken link, or a name that is no text
            return None
        changed_ns = max(stat.st_mtime_ns, stat.st_ctime_ns)
        return Found(key, stat.st_size, f"{stat.st_size}.{stat.st_mtime_ns}.{stat.st_ino}", changed_ns)


class Bucket:
    """A prefix of an S3 bucket; credentials come from the API's own environment."""

    settle_s = 0.0
    skew_s = 2.0  # S3 tells whole seconds

    def __init__(self, bucket: str, prefix: str) -> None:
        self.resumes = not bucket.endswith("--x-s3")  # a directory bucket of AWS lists in no order
        self._bucket = bucket
        self._prefix = prefix

    def list(self, after: str = "") -> Iterator[Found]:
        """List in parts of 1000."""
        import obstore
        from obstore.exceptions import BaseError

        store = s3.connection(self._bucket)
        try:
            for part in obstore.list(store, prefix=self._prefix or None, offset=after or None, chunk_size=1000):
                for item in part:
                    mark = (item["e_tag"] or item["version"] or f"{item['size']}").strip('"')
                    changed_ns = round(item["last_modified"].timestamp()) * 1_000_000_000
                    yield Found(item["path"], int(item["size"]), mark, changed_ns)
        except (BaseError, OSError) as error:
            raise PlatformError(f"s3://{self._bucket}/{self._prefix} cannot be listed: {error}") from error

    def content(self, found: Found) -> str | None:
        """Return the ETag: S3 shows an object only when it is whole."""
        return found.mark

    def about(self, found: Found) -> dict[str, Any]:
        """Return where the object is."""
        data = {"uri": f"s3://{self._bucket}/{found.key}", "bucket": self._bucket, "key": found.key}
        return {**data, "size_bytes": found.size_bytes, "etag": found.mark}
