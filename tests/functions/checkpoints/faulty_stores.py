"""Stores that fail as networks and machines do: at one call, before it does anything or after it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainlet.core.errors import PlatformError
from trainlet.core.protocols import ObjectInfo


class Killed(BaseException):
    """The process is gone: nothing after this call runs, no handler, no cleanup."""


MODES = ("lost before", "lost after", "killed before", "killed after")


class FailingStore:
    """Passes every call on, counts them, and fails at one of them."""

    def __init__(self, store: Any, at: int, mode: str) -> None:
        self._store, self._at, self._mode, self.calls = store, at, mode, 0
        self.url = store.url

    def _fail(self) -> None:
        raise Killed if self._mode.startswith("killed") else PlatformError(f"the connection was {self._mode}")

    def _through(self, name: str, *arguments: Any) -> Any:
        self.calls += 1
        mine = self.calls == self._at
        if mine and self._mode.endswith("before"):
            self._fail()
        result = getattr(self._store, name)(*arguments)
        if mine:
            self._fail()
        return result

    def create(self, key: str, data: Any) -> None:
        self._through("create", key, data)

    def get(self, key: str) -> bytes:
        result: bytes = self._through("get", key)
        return result

    def get_range(self, key: str, start: int, end: int) -> bytes:
        result: bytes = self._through("get_range", key, start, end)
        return result

    def delete(self, key: str) -> None:
        self._through("delete", key)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        return iter(list(self._through("list", prefix, limit)))

    def local_path(self, key: str) -> None:
        return None


class CarelessStore:
    """A store that ignores the condition of a PUT: the last writer wins, and every writer is told that it won."""

    def __init__(self) -> None:
        self.url = "memory:"
        self.objects: dict[str, bytes] = {}

    def create(self, key: str, data: Any) -> None:
        self.objects[key] = bytes(data)

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.get(key)[start:end]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[ObjectInfo]:
        found = sorted(key for key in self.objects if key.startswith(prefix))
        return iter([ObjectInfo(key, len(self.objects[key])) for key in found[:limit]])

    def local_path(self, key: str) -> None:
        return None


class CarefulStore(CarelessStore):
    """The same, but with the condition."""

    def create(self, key: str, data: Any) -> None:
        if key in self.objects:
            raise FileExistsError(key)
        super().create(key, data)
