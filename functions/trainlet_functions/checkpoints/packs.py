"""Packs: tensors as valid `.safetensors` files, with a blake3 for each.

The layout is that of the safetensors format 0.4 (8 bytes little-endian header length, JSON header, raw data), so any
tool can read a pack. Writing and reading go through memory views: no copy but the one into the file.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from blake3 import blake3

from trainlet.core.errors import PlatformError
from trainlet.core.models import Value
from trainlet.core.protocols import ObjectStore

MAX_HEADER = 32 * 1024 * 1024
DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}
NAMES = {code: name for name, code in DTYPES.items()}


class Slice(Value):
    """Where a tensor's bytes are: bytes range[0]..range[1] of a pack, with their blake3."""

    pack: str
    range: tuple[int, int]
    b3: str


class TensorEntry(Value):
    """A tensor in a manifest."""

    dtype: str
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]


def write(
    store: ObjectStore, prefix: str, epoch: int, tensors: dict[str, tuple[str, tuple[int, ...], memoryview]]
) -> dict[str, TensorEntry]:
    """Write one pack of `name -> (dtype, shape, bytes)` and return the entries for the manifest."""
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    head = len(raw).to_bytes(8, "little") + raw
    body = bytearray(len(head) + offset)
    body[: len(head)] = head
    view = memoryview(body)
    entries: dict[str, TensorEntry] = {}
    position = len(head)
    digests: dict[str, str] = {}
    for name, (_, _, data) in tensors.items():
        view[position : position + data.nbytes] = data
        digests[name] = digest_of(view[position : position + data.nbytes])
        position += data.nbytes
    digest = digest_of(view)
    key = f"{prefix}/packs/{digest[:2]}/{digest}-{epoch}-{uuid.uuid4().hex[:12]}.safetensors"
    store.create(key, view)
    for name, (dtype, shape, _) in tensors.items():
        begin, end = header[name]["data_offsets"]
        part = Slice(pack=key, range=(len(head) + begin, len(head) + end), b3=digests[name])
        entries[name] = TensorEntry(dtype=dtype, shape=shape, slices=(part,))
    return entries


def digest_of(data: bytes | memoryview) -> str:
    """Return the blake3 (hex) of some bytes."""
    return blake3(data, max_threads=blake3.AUTO).hexdigest()


def read(store: ObjectStore, name: str, entry: TensorEntry) -> bytes:
    """Return a tensor's verified bytes; raises PlatformError for damage, FileNotFoundError for a missing pack."""
    pieces: list[bytes] = []
    for part in entry.slices:
        begin, end = part.range
        if not 0 <= begin <= end:
            raise PlatformError(f"The checkpoint's entry for {name!r} names a range that cannot be.")
        data = store.get_range(part.pack, begin, end) if end > begin else b""
        if len(data) != end - begin or digest_of(data) != part.b3:
            raise PlatformError(f"The bytes of {name!r} in {part.pack} are damaged (blake3 differs).")
        pieces.append(data)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
