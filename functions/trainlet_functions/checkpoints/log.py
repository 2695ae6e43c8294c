"""The log of one task: lock, fencing token, pointer to the newest commit and journal of removals, all at once.

A record is an object that is created once and never changes. Its key counts down, so that a listing gives the newest
first, and it carries the whole state: recovery is one LIST and one GET. An append that collides reads the winner: a
newer epoch fences the writer, anything else is taken over and the append is tried behind it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Literal

from pydantic import ValidationError

from trainlet.core.errors import Fenced, PlatformError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore

INVERSE = 10**10 - 1
Kind = Literal["acquire", "commit", "tag", "gc", "release"]
_NAME = re.compile(r"(?P<inverse>\d{10})\.json")
MAX_TRIES = 1000


class Commit(Value):
    """A committed checkpoint: where its manifest is and the blake3 that the manifest must have."""

    step: int
    epoch: int
    manifest: str
    digest: str
    size_bytes: int = 0
    reason: str = "periodic"
    metrics: dict[str, float] = {}
    at: str = ""
    packs: tuple[str, ...] = ()


class State(Value):
    """What the log says as a whole: who may write, what is live (oldest first), what is tagged."""

    format: int = 1
    epoch: int = 0
    commits: tuple[Commit, ...] = ()
    tags: dict[str, str] = {}

    def newest(self) -> Commit | None:
        """Return the newest commit."""
        return self.commits[-1] if self.commits else None


class Record(Value):
    """One record of the log."""

    kind: Kind
    seq: int
    epoch: int
    nonce: str
    state: State
    removed: tuple[str, ...] = ()


class Log:
    """The log under `<prefix>/log/`. A reader needs nothing; a writer acquires its epoch first."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self.tail: Record | None = None

    @property
    def state(self) -> State:
        """Return the state at the last record that was read or written."""
        return State() if self.tail is None else self.tail.state

    def refresh(self) -> State:
        """Read the newest record. A LIST that fails raises: it is never an empty log."""
        newest: int | None = None
        for item in self._store.list(f"{self._prefix}/log/"):
            match = _NAME.fullmatch(item.key.rsplit("/", 1)[1])
            if match:
                newest = INVERSE - int(match["inverse"])
                break
        self.tail = None if newest is None else self._read(newest)
        return self.state

    def acquire(self, epoch: int) -> State:
        """Become the writer of this epoch; raises Fenced when a newer epoch has been here."""
        self.refresh()
        if self.state.epoch > epoch:
            raise Fenced(_fenced(epoch, self.state.epoch, self._prefix))
        return self.append("acquire", epoch, lambda state: state.model_copy(update={"epoch": epoch}))

    def append(self, kind: Kind, epoch: int, change: Callable[[State], State], removed: tuple[str, ...] = ()) -> State:
        """Append a record whose state is `change(state before)`; raises Fenced when another epoch has taken over."""
        nonce = uuid.uuid4().hex
        for _ in range(MAX_TRIES):
            seq = 0 if self.tail is None else self.tail.seq + 1
            state = change(self.state)
            record = Record(kind=kind, seq=seq, epoch=epoch, nonce=nonce, state=state, removed=removed)
            try:
                self._store.create(self._key(seq), canonical_json(record.model_dump(mode="json")))
            except FileExistsError:
                winner = self._read(seq)
                self.tail = winner
                if winner.nonce == nonce:
                    return winner.state  # an earlier try of this very append got through
                if winner.state.epoch > epoch or (winner.state.epoch == epoch and winner.kind == "acquire"):
                    raise Fenced(_fenced(epoch, winner.state.epoch, self._prefix)) from None
                continue
            self.tail = record
            return state
        raise PlatformError(f"The checkpoint log {self._prefix} could not be appended to in {MAX_TRIES} tries.")

    def history(self) -> list[Record]:
        """Return every record that is readable, the newest first."""
        records: list[Record] = []
        for item in self._store.list(f"{self._prefix}/log/"):
            match = _NAME.fullmatch(item.key.rsplit("/", 1)[1])
            if match:
                records.append(self._read(INVERSE - int(match["inverse"])))
        return records

    def _key(self, seq: int) -> str:
        return f"{self._prefix}/log/{INVERSE - seq:010d}.json"

    def _read(self, seq: int) -> Record:
        try:
            return Record.model_validate(json.loads(self._store.get(self._key(seq))))
        except (ValueError, ValidationError) as error:
            raise PlatformError(f"Record {seq} of the checkpoint log {self._prefix} is damaged: {error}") from error


def _fenced(epoch: int, newer: int, prefix: str) -> str:
    return f"Attempt {epoch} was superseded by attempt {newer} ({prefix}); nothing that it saves counts any more."
