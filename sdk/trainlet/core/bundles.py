"""The format of a bundle: readable source files in a zip, named by what they say and not by how they were packed.

The digest is the sha256 of the sorted list of [path, sha256 of the file]; the zip around it never matters, so the same
content has the same name on every machine. `trainlet.json` inside describes the entry point.
"""

from __future__ import annotations

import io
import json
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trainlet.core.errors import PlatformError
from trainlet.core.models import Value, canonical_json, sha256_hex
from trainlet.core.specs import Entry

MANIFEST = "trainlet.json"
LOCK = "requirements.lock"
FORMAT = 1
MAX_BYTES = 64 * 1024 * 1024
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, IndexError, OSError, RuntimeError)


class BundleManifest(Value):
    """What a bundle says about itself: where to start, what it imports from elsewhere, and which versions it saw."""

    format: int = FORMAT
    entry: Entry
    imports: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    python: str = ""


def bundle_key(digest: str) -> str:
    """Return the store key of a bundle."""
    return f"bundles/{digest}.zip"


def pack(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return (digest, zip) of the files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            info = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[path])
    return content_digest(files), buffer.getvalue()


def content_digest(files: Mapping[str, bytes]) -> str:
    """Return the digest that names these files."""
    return sha256_hex(canonical_json([[path, sha256_hex(files[path])] for path in sorted(files)]))


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip; raises PlatformError for damage, a path outside, or an unreasonable size."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
                raise PlatformError(f"The bundle unpacks to more than {MAX_BYTES} bytes; it is refused.")
            for info in archive.infolist():
                parts = PurePosixPath(info.filename).parts
                if info.filename.startswith("/") or ".." in parts or "\\" in info.filename or info.is_dir():
                    raise PlatformError(f"The bundle names {info.filename!r}, which is no plain relative file.")
                files[info.filename] = archive.read(info)
    except _DAMAGE as error:
        raise PlatformError(f"The bundle is damaged: {error}. Submit the step again.") from error
    for path in files:
        above = next((str(one) for one in PurePosixPath(path).parents if str(one) in files), None)
        if above is not None:
            raise PlatformError(f"The bundle has {above!r} both as a file and as a folder; it is refused.")
    return files


def digest_of(data: bytes) -> str:
    """Return the content digest of a bundle's zip."""
    return content_digest(unpack(data))


def read_manifest(files: Mapping[str, bytes]) -> BundleManifest:
    """Return the manifest; raises PlatformError when it is missing or from a newer format."""
    try:
        raw = json.loads(files[MANIFEST])
        manifest = BundleManifest.model_validate(raw)
    except (KeyError, ValueError) as error:
        raise PlatformError(f"The bundle has no valid {MANIFEST}: {error}. Submit the step again.") from error
    if manifest.format > FORMAT:
        raise PlatformError(f"The bundle has format {manifest.format}; this trainlet reads up to {FORMAT}. Update it.")
    return manifest


def extract(data: bytes, digest: str, target: Path) -> BundleManifest:
    """Verify a bundle and unpack it at `target` (once; safe with several processes). Return its manifest.

    Raises PlatformError when the content does not have that digest.
    """
    files = unpack(data)
    found = content_digest(files)
    if found != digest:
        raise PlatformError(f"The bundle's content is {found[:12]}, not {digest[:12]} as registered; it is refused.")
    manifest = read_manifest(files)
    if not target.exists():
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        for path, content in files.items():
            place = temporary / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        try:
            os.rename(temporary, target)  # noqa: PTH104 - fails, as wanted, when another process was first
        except OSError:
            if not target.is_dir():
                raise
    return manifest
