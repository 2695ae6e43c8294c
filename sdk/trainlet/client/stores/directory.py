"""A directory as a store: create-once by link(2), durable by fsync of file and folder.

`link` fails when the name exists and is atomic, so of any number of racing writers exactly one wins, and a reader sees
the whole object or none. Temporaries live in `.tmp` beside the data and are never listed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from trainlet.client.stores.keys import check_key
from trainlet.core.errors import PlatformError
from trainlet.core.protocols import ObjectInfo

_ADVICE = {
    errno.ENOSPC: "free some space or set TRAINLET_HOME to another disk",
    errno.EDQUOT: "raise the quota or set TRAINLET_HOME to another disk",
    errno.EFBIG: "raise the file size limit",
    errno.EROFS: "the file system is read-only: set TRAINLET_HOME to a writable folder",
    errno.EACCES: "check who owns the folder",
}


class DirectoryStore:
    """Objects as read-only files under one folder; the folder is made with the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.url = self._root.as_uri()

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self._root)!r})"

    def create(self, key: str, data: bytes | memoryview) -> None:
        def write(file: BinaryIO) -> None:
            file.write(data)

        if not self._publish(key, write):
            raise FileExistsError(key)

    def put_file(self, key: str, path: Path) -> None:
        if self.exists(key):
            return

        def write(file: BinaryIO) -> None:
            with path.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)

        self._publish(key, write)

    def get(self, key: str) -> bytes:
        with self._reading(key):
            return self._path(key).read_bytes()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        with self._reading(key), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(max(0, end - start))

    def get_file(self, key: str, path: Path) -> None:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with self._reading(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(self._path(key), temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        with self._reading(key):
            return self._path(key).is_file()

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        found = 0
        folder, _, _ = prefix.rpartition("/")
        top = self._root / folder if folder else self._root
        with self._reading(prefix):
            for key in self._walk(top, folder, prefix):
                if limit is not None and found >= limit:
                    return
                found += 1
                yield ObjectInfo(key, (self._root / key).stat().st_size)

    def delete(self, key: str) -> None:
        with self._reading(key):
            self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _walk(self, top: Path, folder: str, prefix: str) -> Iterator[str]:
        """Yield keys in the order an object store lists them: by the whole key, so a folder sorts as `name/`."""
        if not top.is_dir():
            if top.exists() or not self._root.exists() or not self._stray(top):
                return
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(top))
        names = [entry.name + "/" if entry.is_dir() else entry.name for entry in os.scandir(top)]
        for name in sorted(name for name in names if not name.startswith(".")):
            key = f"{folder}/{name}" if folder else name
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if name.endswith("/"):
                yield from self._walk(top / name, key.rstrip("/"), prefix)
            elif key.startswith(prefix):
                yield key

    def _stray(self, path: Path) -> bool:
        """Say whether a parent of a missing folder is a file: a broken store, not an empty one."""
        return any(parent.is_file() for parent in path.parents if parent.is_relative_to(self._root))

    def _publish(self, key: str, write: Callable[[BinaryIO], None]) -> bool:
        """Write through a temporary and link it into place; False when the key exists."""
        target = self._path(key)
        temporary = self._root / ".tmp" / uuid.uuid4().hex
        with self._reading(key):
            temporary.parent.mkdir(parents=True, exist_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    write(file)
                    file.flush()
                    os.fchmod(file.fileno(), 0o444)
                    os.fsync(file.fileno())
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return False
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folders(target.parent, self._root)
            return True

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileExistsError, FileNotFoundError) as error:
            raise type(error)(key) from error
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0, "check the disk and the folder's permissions")
            raise PlatformError(
                f"The store {self._root} failed on {key!r}: {error.strerror or error}; {advice}."
            ) from error


def _sync_folders(folder: Path, root: Path) -> None:
    """Make a new name durable: fsync its folder and, as it may be new too, the folders above up to the root."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if folder == root or folder.parent == folder:
            return
        folder = folder.parent
