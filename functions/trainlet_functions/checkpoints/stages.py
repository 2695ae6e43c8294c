"""Staged snapshots: memory that the trainer copies into and another process uploads from.

A buffer is a file without a name (Linux: memfd), held open by whoever must outlive the trainer. Its first page says what
is in it, and the sequence number there is written last: 0 while somebody writes, so a trainer that is killed or stopped
in the middle of a copy leaves a buffer that nobody takes for a snapshot. Two buffers: one is always complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from blake3 import blake3

from trainlet.core.errors import PlatformError
from trainlet_functions.checkpoints import layouts

PAGE = 4096
MAGIC = b"trnstg01"
_HEAD = struct.Struct("<8sQQQQ32s")  # magic, sequence, step, data bytes, meta bytes, blake3 of the meta
_SEQUENCE = 8
MADV_POPULATE_WRITE = 23
MAX_META = 1 << 30


def anonymous_file() -> int:
    """Return the descriptor of an empty file without a name; it must not shrink while others map it."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("trainlet-stage", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return descriptor
    with tempfile.TemporaryFile() as file:  # unlinked at once: freed with its last descriptor
        return os.dup(file.fileno())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a staged state is: everything but the bytes of its tensors."""

    sequence: int
    step: int
    trees: dict[str, Any]
    tensors: tuple[layouts.Tensor, ...]
    metrics: dict[str, float]
    data: dict[str, int | None]


class Buffer:
    """One staged snapshot behind a file descriptor; both sides make their own Buffer over it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None
        self._faulted = 0

    def prepare(self, size_bytes: int) -> None:
        """Have room for this much data with every page already there, so that the first copy is as fast as the next."""
        self._reserve(PAGE + size_bytes + PAGE)
        assert self._map is not None
        if self._faulted < len(self._map):
            with contextlib.suppress(OSError):  # kernels before 5.14: pages come with the first copy
                self._map.madvise(MADV_POPULATE_WRITE)
            self._faulted = len(self._map)

    @contextlib.contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Hold the buffer against the other process; yields False when it is taken and `wait` is not set."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def peek(self) -> tuple[int, int]:
        """Return (sequence, step) of what is staged; (0, 0) when nothing is, or it is being written."""
        try:
            raw = os.pread(self._descriptor, _HEAD.size, 0)
        except OSError:
            return 0, 0
        if len(raw) < _HEAD.size or raw[:8] != MAGIC:
            return 0, 0
        _, sequence, step, _, _, _ = _HEAD.unpack(raw)
        return (sequence, step) if sequence else (0, 0)

    def begin(self, layout: layouts.Layout) -> memoryview:
        """Mark the buffer as unfinished and return the memory for the data of this layout."""
        self._reserve(PAGE + layout.size_bytes + PAGE)
        self._set_sequence(0)
        assert self._map is not None
        return memoryview(self._map)[PAGE : PAGE + layout.size_bytes]

    def finish(self, snapshot: Snapshot, layout: layouts.Layout) -> None:
        """Write what the snapshot is, then its sequence number: now it is complete."""
        fields = {**asdict(snapshot), "tensors": [list(asdict(one).values()) for one in snapshot.tensors]}
        meta = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
        start = PAGE + layout.size_bytes
        self._reserve(start + len(meta))
        assert self._map is not None
        self._map[start : start + len(meta)] = meta
        head = _HEAD.pack(MAGIC, 0, snapshot.step, layout.size_bytes, len(meta), blake3(meta).digest())
        self._map[: len(head)] = head
        self._set_sequence(snapshot.sequence)

    def read(self) -> tuple[Snapshot, memoryview] | None:
        """Return the staged snapshot with its data, or None when there is none or it does not fit its own checksum."""
        size = os.fstat(self._descriptor).st_size
        if size < PAGE:
            return None
        self._reserve(size)
        assert self._map is not None
        magic, sequence, step, data_bytes, meta_bytes, digest = _HEAD.unpack(self._map[: _HEAD.size])
        start = PAGE + data_bytes
        if magic != MAGIC or sequence == 0 or meta_bytes > MAX_META or start + meta_bytes > len(self._map):
            return None
        meta = self._map[start : start + meta_bytes]
        if blake3(meta).digest() != digest:
            return None
        snapshot = _snapshot(json.loads(meta))
        if snapshot.step != step or layouts.of(snapshot.tensors).size_bytes != data_bytes:
            return None
        return snapshot, memoryview(self._map)[PAGE:start]

    def close(self) -> None:
        """Let go of the memory; the file stays while somebody else holds it."""
        self._map = None  # views that are still in use keep it alive
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _reserve(self, size_bytes: int) -> None:
        if self._map is not None and len(self._map) >= size_bytes:
            return
        size = size_bytes + (-size_bytes % PAGE)
        try:
            if os.fstat(self._descriptor).st_size < size:
                os.ftruncate(self._descriptor, size)
            self._map = mmap.mmap(self._descriptor, max(size, os.fstat(self._descriptor).st_size))
        except (OSError, ValueError) as error:
            raise PlatformError(
                f"There is no memory to stage a checkpoint of {size / 2**20:.0f} MiB ({error}). A state needs twice its "
                "size in memory beside the trainer: ask for more memory, or register less."
            ) from error
        self._faulted = 0

    def _set_sequence(self, sequence: int) -> None:
        assert self._map is not None
        # One aligned store of 8 bytes: a reader sees the old number or the new one.
        memoryview(self._map)[_SEQUENCE : _SEQUENCE + 8].cast("Q")[0] = sequence


def _snapshot(fields: dict[str, Any]) -> Snapshot:
    tensors = tuple(
        layouts.Tensor(name, dtype, tuple(shape), tuple(offset), None if whole is None else tuple(whole))
        for name, dtype, shape, offset, whole in fields.pop("tensors")
    )
    return Snapshot(tensors=tensors, **fields)
