"""The seams: what one room asks of another, each with at least two real implementations.

`Clock` is in `trainlet.core.clocks`. Nothing else is abstract: a new protocol needs a second real implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainlet.core.specs import FunctionSpec
from trainlet.core.triggers import Watch
from trainlet.core.wire import Deployment, Device


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in the store."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """S3-compatible storage or a directory. Keys are relative POSIX paths; bytes are immutable once created.

    Errors: FileNotFoundError for a missing key, FileExistsError from `create` when the key exists, PlatformError for
    everything else (full, read-only, unreachable): a failed LIST is never an empty one.
    """

    url: str

    def create(self, key: str, data: bytes | memoryview) -> None:
        """Write a new object durably; raises FileExistsError when the key exists (even with equal bytes)."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file under a content-addressed key; an object that is already there is left as it is."""
        ...

    def get(self, key: str) -> bytes:
        """Return the whole object."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return bytes start..end (exclusive)."""
        ...

    def get_file(self, key: str, path: Path) -> None:
        """Download to a new file, written under a temporary name and renamed."""
        ...

    def exists(self, key: str) -> bool:
        """Say whether the key exists."""
        ...

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose key starts with prefix, in lexicographic order."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is no error."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Return the read-only file behind the key where the store is a directory of this machine, else None."""
        ...


class EventSink(Protocol):
    """Where the outbox delivers CloudEvents: straight to a local worker, or to a Knative broker."""

    def deliver(self, headers: Mapping[str, str], body: bytes, project: str, function: str) -> bool:
        """Send one event in binary mode. True: acknowledged with 2xx; False or an exception: try again later."""
        ...


class DeviceInventory(Protocol):
    """Which devices this machine has: from NVML, or virtual ones."""

    def devices(self) -> list[Device]:
        """Return the devices, in a stable order."""
        ...


class WorkerHost(Protocol):
    """The place a worker runs in: a local process, or a Knative pod with its queue-proxy."""

    def busy(self) -> None:
        """An attempt starts: keep this worker alive (Knative: the hold)."""
        ...

    def idle(self) -> None:
        """The attempt ended: this worker may go."""
        ...

    def watch(self, drain: Callable[[str], None]) -> None:
        """Start to watch for the end of this place; call `drain(reason)` once when it comes."""
        ...

    def close(self) -> None:
        """Stop all watching."""
        ...


class FunctionBackend(Protocol):
    """What makes workers exist: the local pool, or Knative Services."""

    def apply(self, project: str, spec: FunctionSpec) -> None:
        """Make the function deployable; called when it is registered. Idempotent."""
        ...

    def demand(self, project: str, spec: FunctionSpec, workers: int) -> None:
        """State how many workers are wanted now (running + dispatched tasks, at most the maximum)."""
        ...

    def watch(self, project: str, watch: Watch) -> None:
        """Have what a trigger waits for brought to the training API; called when it is registered. Idempotent."""
        ...

    def keep(
        self,
        functions: Sequence[tuple[str, FunctionSpec]],
        watches: Sequence[tuple[str, Watch]],
        projects: Sequence[str],
    ) -> None:
        """Repair what was changed by others, and remove what belongs to no function or trigger of these any more."""
        ...

    def status(self, project: str, function: str | None = None) -> Mapping[str, Deployment]:
        """Return what is known outside the database of the workers of one function, or of all; empty: nothing is."""
        ...

    def pin(self, worker: str, busy: bool) -> None:
        """Protect a busy worker from scale-down, or release it."""
        ...

    def close(self) -> None:
        """Let go of everything that this backend runs itself; its workers checkpoint and stop."""
        ...
