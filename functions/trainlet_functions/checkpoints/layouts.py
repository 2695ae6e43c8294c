"""Where each tensor goes: which packs a state is cut into, and at which byte of the staged data each slice begins.

A layout depends on names, dtypes and shapes only, so the process that copies and the process that uploads compute the
same one. Packs lie in staged memory as they will lie in the store, header included: an upload is one view, no copy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PACK_BYTES = 64 << 20
ALIGN = 64
MAX_DIMENSIONS = 32
MAX_NAME = 4096
DTYPES = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "float32": ("F32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor without its bytes. `offset` and `whole` place a shard inside a tensor of many ranks."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: tuple[int, ...] = ()
    whole: tuple[int, ...] | None = None

    @property
    def size_bytes(self) -> int:
        """Return the size of the data."""
        return math.prod(self.shape) * DTYPES[self.dtype][1]


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of rows of a tensor: its place in the tensor, and its bytes [begin, end) in the staged data."""

    tensor: Tensor
    rows: tuple[int, int]
    begin: int
    end: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the block; a tensor without dimensions is one block."""
        return (self.rows[1] - self.rows[0], *self.tensor.shape[1:]) if self.tensor.shape else ()

    @property
    def offset(self) -> tuple[int, ...]:
        """Return where the block begins in the whole tensor."""
        if not self.tensor.shape:
            return ()
        base = self.tensor.offset or (0,) * len(self.tensor.shape)
        return (base[0] + self.rows[0], *base[1:])


@dataclass(frozen=True, slots=True)
class Pack:
    """A `.safetensors` file in the making: its header and pieces, and its bytes [begin, end) in the staged data."""

    header: bytes
    pieces: tuple[Piece, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All packs of a state."""

    packs: tuple[Pack, ...]
    size_bytes: int

    @property
    def pieces(self) -> list[Piece]:
        """Return the pieces of all packs."""
        return [piece for pack in self.packs for piece in pack.pieces]


@lru_cache(maxsize=8)
def of(tensors: tuple[Tensor, ...]) -> Layout:
    """Return the layout of these tensors, in their order."""
    packs: list[Pack] = []
    position = 0
    for group in _groups(tensors):
        pack = _pack(group, position)
        packs.append(pack)
        position = pack.end + (-pack.end % ALIGN)
    return Layout(tuple(packs), position)


def header_of(pieces: Iterable[Piece]) -> bytes:
    """Return the head of a `.safetensors` file that holds these pieces, one after the other."""
    entries: dict[str, Any] = {}
    position = 0
    for piece in pieces:
        name = piece.tensor.name if piece.rows[0] == 0 else f"{piece.tensor.name}@{piece.rows[0]}"
        size = piece.end - piece.begin
        entries[name] = {
            "dtype": DTYPES[piece.tensor.dtype][0],
            "shape": list(piece.shape),
            "data_offsets": [position, position + size],
        }
        position += size
    raw = json.dumps(entries, separators=(",", ":")).encode()
    raw += b" " * (-(len(raw) + 8) % ALIGN)
    return len(raw).to_bytes(8, "little") + raw


def _groups(tensors: tuple[Tensor, ...]) -> list[list[tuple[Tensor, tuple[int, int]]]]:
    """Cut tensors into row blocks of at most a pack, and collect blocks until a pack is full."""
    groups: list[list[tuple[Tensor, tuple[int, int]]]] = []
    filled = 0
    for tensor in tensors:
        rows = tensor.shape[0] if tensor.shape else 1
        step = max(1, PACK_BYTES // max(1, tensor.size_bytes // max(1, rows)))
        for first in range(0, max(rows, 1), step):
            last = min(rows, first + step)
            size = tensor.size_bytes // max(rows, 1) * (last - first)
            if not groups or filled + size > PACK_BYTES:
                groups.append([])
                filled = 0
            groups[-1].append((tensor, (first, last)))
            filled += size
    return groups


def _pack(group: list[tuple[Tensor, tuple[int, int]]], begin: int) -> Pack:
    def place(start: int) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        for tensor, rows in group:
            row = tensor.size_bytes // tensor.shape[0] if tensor.shape and tensor.shape[0] else tensor.size_bytes
            end = start + row * (rows[1] - rows[0])
            pieces.append(Piece(tensor, rows, start, end))
            start = end
        return tuple(pieces)

    header = header_of(place(0))
    pieces = place(begin + len(header))
    return Pack(header, pieces, begin, pieces[-1].end)
