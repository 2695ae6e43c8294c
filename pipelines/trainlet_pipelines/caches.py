"""Results of earlier tasks, used again where code and inputs are the same.

The key is the digest of the function (its code, packages and options) and the content of the inputs: a file counts by
what is in it, wherever it lies. What was found is used only if all that it refers to is still in the store. Tasks that
run at the end are always done, and what cannot travel between steps is done again each time, and said so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainlet.core import artifacts, codecs
from trainlet.core.errors import PlatformError, TrainletError
from trainlet.core.models import canonical_json, sha256_hex
from trainlet.core.protocols import ObjectStore
from trainlet_pipelines.runner import Call, Executor, Outcome

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Cache:
    """Where results are kept and how a value is written there. `place` keeps apart what runs in different ways."""

    store: ObjectStore
    run_id: str
    place: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    tell: Callable[[str], object]


class Cached:
    """An executor that does a call only when its result is not known yet."""

    def __init__(self, inner: Executor, cache: Cache, digests: dict[str, str]) -> None:
        self._inner, self._cache, self._digests = inner, cache, digests
        self.reused: list[str] = []

    def start(self, call: Call, done: Callable[[Outcome], None]) -> None:
        """Answer from the store, or begin the call and keep its result."""
        key = None if call.final else self._key(call)
        if key is None:
            self._inner.start(call, done)
            return
        with contextlib.suppress(FileNotFoundError, TrainletError, ValueError, KeyError):
            entry = json.loads(self._cache.store.get(key))
            for needed in references(entry["value"], self._cache.store):
                if not self._cache.store.exists(needed):
                    raise FileNotFoundError(needed)
            outcome = Outcome("succeeded", self._cache.decode(entry["value"]))
            self.reused.append(call.name)
            self._cache.tell(f"trainlet: {call.name} is reused from {entry['run']} of {entry['at']}")
            done(outcome)
            return

        def ended(outcome: Outcome) -> None:
            if outcome.state == "succeeded":
                self._keep(key, call, outcome.value)
            done(outcome)

        self._inner.start(call, ended)

    def settle(self) -> None:
        """Let the executor run what it has."""
        self._inner.settle()

    def cancel(self, reason: str) -> None:
        """Stop what runs."""
        self._inner.cancel(reason)

    def _key(self, call: Call) -> str | None:
        try:
            inputs = {name: self._cache.encode(value) for name, value in call.inputs.items()}
        except TrainletError as error:
            self._cache.tell(f"trainlet: {call.name} is not cached: {error}")
            return None
        described = [FORMAT, self._cache.place, self._digests[call.node.function], _content(inputs)]
        return f"cache/{sha256_hex(canonical_json(described))}.json"

    def _keep(self, key: str, call: Call, value: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            entry = {"value": self._cache.encode(value), "run": self._cache.run_id, "at": at, "task": call.name}
        except (TrainletError, OSError) as error:
            self._cache.tell(f"trainlet: the result of {call.name} is not cached: {error}")
            return
        raw = canonical_json(entry)
        try:
            self._cache.store.create(key, raw)
        except FileExistsError:  # something that it refers to is gone, or another run was faster: this one is whole
            self._cache.store.delete(key)
            with contextlib.suppress(FileExistsError):
                self._cache.store.create(key, raw)


def _content(encoded: Any) -> Any:
    """Return an encoded value without the name of a folder, which says nothing and is another each time."""
    if isinstance(encoded, list):
        return [_content(one) for one in encoded]
    if not isinstance(encoded, dict):
        return encoded
    named = encoded.get(codecs.TAG) in ("artifact", "path") and encoded.get("form") == "folder"
    return {key: _content(one) for key, one in encoded.items() if not (named and key == "name")}


def references(encoded: Any, store: ObjectStore) -> Iterator[str]:
    """Yield the keys of all objects that an encoded value needs; raises FileNotFoundError or PlatformError."""
    if isinstance(encoded, list):
        for one in encoded:
            yield from references(one, store)
    elif isinstance(encoded, dict):
        kind, digest = encoded.get(codecs.TAG), encoded.get("digest")
        if kind is not None and isinstance(digest, str):
            yield from _files(kind, digest, encoded, store)
        for one in encoded.values():
            yield from references(one, store)


def _files(kind: str, digest: str, encoded: dict[str, Any], store: ObjectStore) -> Iterator[str]:
    if encoded.get("form") == "folder":
        yield f"trees/{digest}.json"
        for file in artifacts.read_tree(digest, store):
            yield artifacts.blob_key(file.sha256)
        return
    yield artifacts.blob_key(digest)
    if kind == "blob":
        inner = codecs.load_blob(encoded, store)
        if isinstance(inner, dict) and inner.get("digest") == digest:
            raise PlatformError("A value refers to itself.")
        yield from references(inner, store)
