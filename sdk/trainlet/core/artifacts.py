"""Files and folders that steps hand on: `Dataset`, `Model`, `Artifact`.

An artifact is a path until it is handed on; then it is a digest. Files are stored once per content under
`blobs/<h2>/<sha256>`, a folder as a manifest `trees/<sha256>.json` that lists them. Nothing is copied through the API,
and in a store that is a directory of this machine, reading needs no copy at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import ValidationError

from trainlet.core import contexts
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import Value, canonical_json, sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import Sha256

_CHUNK = 1 << 20
_SHA = re.compile(r"[0-9a-f]{64}")


class TreeFile(Value):
    """One file of a stored folder."""

    path: str
    sha256: Sha256
    size_bytes: int
    executable: bool = False


class ArtifactRef(Value):
    """A stored artifact, as it travels in values."""

    digest: Sha256
    form: Literal["file", "folder"]
    size_bytes: int
    name: str = ""
    metadata: dict[str, Any] = {}


class Artifact:
    """A file or folder with metadata. `Artifact()` is a new folder to write into; read or write under `.path`.

    Keyword arguments become `metadata` (JSON values).
    """

    def __init__(self, **metadata: Any) -> None:
        self.metadata: dict[str, Any] = metadata
        self._path: Path | None = None
        self._ref: ArtifactRef | None = None
        self._store: ObjectStore | None = None
        self._workdir: Path | None = None

    def __repr__(self) -> str:
        where = f"digest={self._ref.digest[:12]}" if self._ref else f"path={str(self._path)!r}"
        return f"{type(self).__name__}({where}, metadata={self.metadata!r})"

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], **metadata: Any) -> Self:
        """Make an artifact of an existing file or folder; its content is read when it is handed on."""
        found = Path(path).absolute()
        if not found.exists():
            raise UserError(f"{cls.__name__}.from_path({str(path)!r}): there is no such file or folder.")
        artifact = cls(**metadata)
        artifact._path = found
        return artifact

    @classmethod
    def from_ref(cls, ref: ArtifactRef, store: ObjectStore, workdir: Path) -> Self:
        """Make an artifact that is fetched from the store when its path is first asked for."""
        artifact = cls(**ref.metadata)
        artifact._ref, artifact._store, artifact._workdir = ref, store, workdir
        return artifact

    @property
    def path(self) -> Path:
        """Return where the content is: read-only when it came from the store, writable when it is new."""
        if self._path is None:
            if self._ref is not None and self._store is not None and self._workdir is not None:
                self._path = fetch(self._ref, self._store, self._workdir)
            else:
                context = contexts.current_or_none()
                folder = context.artifacts_dir if context else Path(tempfile.mkdtemp(prefix="trainlet-"))
                self._path = folder / f"{type(self).__name__.lower()}-{uuid.uuid4().hex[:8]}"
                self._path.mkdir(parents=True)
        return self._path

    @property
    def digest(self) -> str | None:
        """Return the sha256 of the content, or None before the artifact was handed on."""
        return self._ref.digest if self._ref else None

    @property
    def size_bytes(self) -> int | None:
        """Return the size of all files, or None before the artifact was handed on."""
        return self._ref.size_bytes if self._ref else None

    def store(self, store: ObjectStore) -> ArtifactRef:
        """Write the content to the store (once per content) and return its reference."""
        if self._ref is not None and self._store is not None and self._store.url == store.url:
            return self._ref.model_copy(update={"metadata": self.metadata})
        return put(self.path, store, self.metadata)


class Dataset(Artifact):
    """Data that steps read."""


class Model(Artifact):
    """What training made."""


KINDS: dict[str, type[Artifact]] = {"Artifact": Artifact, "Dataset": Dataset, "Model": Model}


def blob_key(digest: str) -> str:
    """Return the store key of a file's content; raises PlatformError when the digest is no sha256."""
    if not _SHA.fullmatch(digest):
        raise PlatformError(f"{digest!r} is not a sha256: the reference is damaged.")
    return f"blobs/{digest[:2]}/{digest}"


def hash_file(path: Path) -> tuple[str, int]:
    """Return the sha256 and size of a file, read in pieces."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def put(path: Path, store: ObjectStore, metadata: dict[str, Any]) -> ArtifactRef:
    """Store a file or folder. Symbolic links are followed; a special file is a UserError."""
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"The metadata of {path.name!r} must be JSON values: {error}.") from error
    if path.is_file():
        digest, size = hash_file(path)
        store.put_file(blob_key(digest), path)
        return ArtifactRef(digest=digest, form="file", size_bytes=size, name=path.name, metadata=metadata)
    if not path.is_dir():
        raise UserError(f"{path} is neither a file nor a folder; it cannot be handed on.")
    files: list[TreeFile] = []
    for item in sorted(path.rglob("*"), key=lambda one: one.relative_to(path).as_posix()):
        if item.is_dir():
            continue
        if not item.is_file():
            raise UserError(f"{item} is a special file; remove it from the artifact.")
        digest, size = hash_file(item)
        store.put_file(blob_key(digest), item)
        relative = item.relative_to(path).as_posix()
        files.append(TreeFile(path=relative, sha256=digest, size_bytes=size, executable=os.access(item, os.X_OK)))
    tree = canonical_json([file.model_dump(mode="json") for file in files])
    digest = sha256_hex(tree)
    with contextlib.suppress(FileExistsError):
        store.create(f"trees/{digest}.json", tree)
    size = sum(file.size_bytes for file in files)
    return ArtifactRef(digest=digest, form="folder", size_bytes=size, name=path.name, metadata=metadata)


def fetch(ref: ArtifactRef, store: ObjectStore, workdir: Path) -> Path:
    """Return a local read-only path with the artifact's content, verified where bytes are copied."""
    if ref.form == "file":
        local = store.local_path(blob_key(ref.digest))
        target = workdir / "artifacts" / ref.digest[:16] / (_plain_name(ref.name) or "file")
        if not target.exists():
            _place(ref.digest, local, store, target)
        return target
    target = workdir / "artifacts" / ref.digest[:16]
    if (target / ".complete").exists():
        return target / "tree"
    for file in read_tree(ref.digest, store):
        place = target / "tree" / file.path
        if not place.exists():
            _place(file.sha256, store.local_path(blob_key(file.sha256)), store, place)
        if file.executable and not place.is_symlink():
            place.chmod(0o555)
    (target / "tree").mkdir(parents=True, exist_ok=True)
    (target / ".complete").touch()
    return target / "tree"


def read_tree(digest: str, store: ObjectStore) -> list[TreeFile]:
    """Return the verified listing of a stored folder; raises PlatformError when it is damaged or hostile."""
    if not _SHA.fullmatch(digest):
        raise PlatformError(f"{digest!r} is not a sha256: the reference is damaged.")
    raw = store.get(f"trees/{digest}.json")
    if sha256_hex(raw) != digest:
        raise PlatformError(f"The folder manifest {digest[:12]} in {store.url} is damaged (its sha256 differs).")
    try:
        files = [TreeFile.model_validate(item) for item in json.loads(raw)]
    except (ValueError, ValidationError) as error:
        raise PlatformError(f"The folder manifest {digest[:12]} in {store.url} is no list of files.") from error
    for file in files:
        parts = PurePosixPath(file.path).parts
        if not parts or file.path.startswith("/") or ".." in parts or "\\" in file.path or "\0" in file.path:
            raise PlatformError(f"The folder manifest {digest[:12]} names {file.path!r}, outside of the folder.")
    return files


def _place(digest: str, local: Path | None, store: ObjectStore, target: Path) -> None:
    """Put one file's content at target: a link where the store is on this machine, else a verified copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if local is not None:
        if not local.is_file():
            raise FileNotFoundError(blob_key(digest))
        try:
            target.symlink_to(local)
        except FileExistsError:
            return
        return
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        store.get_file(blob_key(digest), temporary)
        if hash_file(temporary)[0] != digest:
            raise PlatformError(f"The file {digest[:12]} in {store.url} is damaged (its sha256 differs).")
        temporary.chmod(0o444)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _plain_name(name: str) -> str:
    plain = PurePosixPath(name.replace("\\", "/")).name
    return "" if plain in (".", "..") else plain


def remove_scratch(folder: Path) -> None:
    """Remove an attempt's scratch folder, read-only files included."""
    shutil.rmtree(folder, ignore_errors=True)
