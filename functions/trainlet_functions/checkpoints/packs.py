"""Packs in the store: writing the pieces of a state that changed, and reading verified bytes back.

A pack is a valid `.safetensors` file (8 bytes little-endian header length, JSON header, raw data), so any tool can read
one; the manifest holds a blake3 for each slice. A whole pack goes to the store straight from staged memory. Pieces of
packs that changed only in part are gathered in memory first, one pack at a time.
"""

from __future__ import annotations

import itertools
import math
import mmap
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from blake3 import blake3
from pydantic import Field

from trainlet.core.errors import PlatformError
from trainlet.core.models import Value
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import layouts

CONNECTIONS = 16
Known = dict[tuple[str, str, tuple[int, ...], tuple[int, ...], str], "Slice"]


class Slice(Value):
    """A block of a tensor: where it lies in the tensor, where its bytes are in a pack, and their blake3."""

    offset: tuple[int, ...] = ()
    shape: tuple[int, ...]
    pack: str
    range: tuple[int, int]
    b3: str = Field(pattern="[0-9a-f]{64}")

    @property
    def size_bytes(self) -> int:
        """Return the size of the block."""
        return self.range[1] - self.range[0]


class TensorEntry(Value):
    """A tensor in a manifest: its blocks cover it exactly once."""

    dtype: str
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What a write made: the slice of every piece, and how many bytes were new."""

    slices: tuple[tuple[layouts.Piece, Slice], ...]
    bytes_new: int


def digest_of(data: bytes | memoryview) -> str:
    """Return the blake3 (hex) of some bytes."""
    return blake3(data).hexdigest()


def write(
    store: ObjectStore,
    prefix: str,
    epoch: int,
    layout: layouts.Layout,
    data: memoryview,
    known: Known,
    *,
    goes_on: Callable[[], None] = lambda: None,
    elsewhere: Callable[[], Known] | None = None,
    planned: Callable[[Written], None] = lambda plan: None,
    connections: int = CONNECTIONS,
) -> Written:
    """Write what `known` does not have yet. `goes_on` is called before each pack and raises to give up.

    `elsewhere` is asked, when everything is hashed, for what somebody else writes; without it each pack is written as soon
    as it is hashed. `planned` is told what will be written while that is still going on.
    """

    def hashed(pack: layouts.Pack) -> list[tuple[layouts.Piece, str]]:
        goes_on()
        return [(piece, digest_of(data[piece.begin : piece.end])) for piece in pack.pieces]

    def put(key: str, body: memoryview) -> None:
        goes_on()
        store.create(key, body)

    done: list[tuple[layouts.Piece, Slice]] = []
    loose: list[tuple[layouts.Piece, str]] = []
    new_bytes = 0
    with ThreadPoolExecutor(max(1, min(connections, len(layout.packs))), thread_name_prefix="upload") as pool:
        uploads = []
        digests: Iterable[list[tuple[layouts.Piece, str]]] = pool.map(hashed, layout.packs)
        if elsewhere is not None:
            digests = list(digests)
            known = {**elsewhere(), **known}
        for pack, pieces in zip(layout.packs, digests, strict=True):
            found = [(piece, known.get(_identity(piece, digest))) for piece, digest in pieces]
            done += [(piece, part) for piece, part in found if part is not None]
            fresh = [one for one, (_, part) in zip(pieces, found, strict=True) if part is None]
            new_bytes += sum(piece.end - piece.begin for piece, _ in fresh)
            if len(fresh) == len(pieces):
                data_begin = len(pack.header) + pack.begin
                data[pack.begin : data_begin] = pack.header
                key, slices = _named(prefix, epoch, pieces, len(pack.header))
                done += slices
                uploads.append(pool.submit(put, key, data[pack.begin : pack.end]))
            else:
                loose += fresh
        groups = [(group, layouts.header_of(piece for piece, _ in group)) for group in _gathered(loose)]
        keys = []
        for group, header in groups:
            key, slices = _named(prefix, epoch, group, len(header))
            done += slices
            keys.append(key)
        planned(Written(tuple(done), new_bytes))
        for upload in uploads:
            upload.result()
    for key, (group, header) in zip(keys, groups, strict=True):
        body = bytearray(header)
        for piece, _ in group:
            body += data[piece.begin : piece.end]
        put(key, memoryview(body))
    return Written(tuple(done), new_bytes)


def _named(
    prefix: str, epoch: int, pieces: list[tuple[layouts.Piece, str]], position: int
) -> tuple[str, list[tuple[layouts.Piece, Slice]]]:
    """Return the key of a new pack and its slices; the data begins at a position."""
    name = digest_of("".join(digest for _, digest in pieces).encode())
    key = f"{prefix}/packs/{name[:2]}/{name[:32]}-{epoch}-{uuid.uuid4().hex[:12]}.safetensors"
    slices: list[tuple[layouts.Piece, Slice]] = []
    for piece, digest in pieces:
        end = position + piece.end - piece.begin
        part = Slice(offset=piece.offset, shape=piece.shape, pack=key, range=(position, end), b3=digest)
        slices.append((piece, part))
        position = end
    return key, slices


def _gathered(pieces: list[tuple[layouts.Piece, str]]) -> Iterator[list[tuple[layouts.Piece, str]]]:
    group: list[tuple[layouts.Piece, str]] = []
    filled = 0
    for piece, digest in pieces:
        size = piece.end - piece.begin
        if group and filled + size > layouts.PACK_BYTES:
            yield group
            group, filled = [], 0
        group.append((piece, digest))
        filled += size
    if group:
        yield group


def _identity(piece: layouts.Piece, digest: str) -> tuple[str, str, tuple[int, ...], tuple[int, ...], str]:
    return piece.tensor.name, piece.tensor.dtype, piece.offset, piece.shape, digest


def known_of(tensors: dict[str, TensorEntry]) -> Known:
    """Return the slices of a manifest by what they hold."""
    return {
        (name, entry.dtype, part.offset, part.shape, part.b3): part
        for name, entry in tensors.items()
        for part in entry.slices
    }


def check(name: str, entry: TensorEntry, prefix: str) -> None:
    """Raise PlatformError unless the slices are inside this run and cover the tensor exactly once."""
    kind = layouts.DTYPES.get(entry.dtype)
    if kind is None:
        raise PlatformError(f"The checkpoint has {name!r} as {entry.dtype!r}, which this trainlet does not know.")
    if len(entry.shape) > layouts.MAX_DIMENSIONS or any(size < 0 for size in entry.shape):
        raise PlatformError(f"The checkpoint's shape of {name!r} cannot be: {entry.shape}.")
    elements = 0
    for part in entry.slices:
        offset = part.offset or (0,) * len(part.shape)
        fits = len(offset) == len(part.shape) == len(entry.shape) and all(
            first >= 0 and size >= 0 and first + size <= whole
            for first, size, whole in zip(offset, part.shape, entry.shape, strict=True)
        )
        count = math.prod(part.shape) if fits else -1
        if not fits or part.range[0] < 8 or part.size_bytes != count * kind[1]:
            raise PlatformError(f"The checkpoint's entry for {name!r} names a slice that cannot be.")
        if not part.pack.startswith(f"{prefix}/packs/") or ".." in part.pack:
            raise PlatformError(f"The checkpoint's entry for {name!r} leads out of its run: {part.pack!r}.")
        elements += count
    if elements != math.prod(entry.shape) or _overlap(entry):
        raise PlatformError(f"The checkpoint's slices of {name!r} do not cover it exactly once.")


def _overlap(entry: TensorEntry) -> bool:
    """Say whether two slices share an element; they are sorted, so in the usual case neighbors are enough."""
    boxes = sorted(
        (part.offset or (0,) * len(part.shape), part.shape) for part in entry.slices if math.prod(part.shape)
    )
    rows_only = all(shape[1:] == entry.shape[1:] for _, shape in boxes if shape)
    pairs: Iterable[tuple[Any, Any]] = itertools.pairwise(boxes)
    if not rows_only:
        pairs = ((one, other) for index, one in enumerate(boxes) for other in boxes[index + 1 :])
    return any(
        all(a < b + m and b < a + n for a, n, b, m in zip(one[0], one[1], other[0], other[1], strict=True))
        for one, other in pairs
    )


def fetch(store: ObjectStore, parts: list[Slice], *, verify: bool = True) -> Iterator[tuple[Slice, memoryview]]:
    """Yield the bytes of slices, read and verified by several threads, in their order.

    Raises PlatformError for damage, FileNotFoundError for a missing pack.
    """
    mapped: dict[str, memoryview] = {}

    def read(part: Slice) -> tuple[Slice, memoryview]:
        begin, end = part.range
        if part.pack not in mapped:
            mapped[part.pack] = _mapped(store, part.pack)
        local = mapped[part.pack]
        data = local[begin:end] if local.nbytes else memoryview(store.get_range(part.pack, begin, end))
        if data.nbytes != end - begin or (verify and digest_of(data) != part.b3):
            raise PlatformError(f"Bytes {begin} to {end} of {part.pack} are damaged (blake3 differs).")
        return part, data

    with ThreadPoolExecutor(max(1, min(CONNECTIONS, len(parts))), thread_name_prefix="restore") as pool:
        yield from pool.map(read, parts)


def _mapped(store: ObjectStore, key: str) -> memoryview:
    """Map a pack that is a file of this machine, privately: what is done to the memory never reaches the file."""
    path = store.local_path(key)
    if path is None:
        return memoryview(b"")
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except ValueError:
            raise PlatformError(f"The pack {key} is empty.") from None
