"""The log of one task: lock, fencing token, pointer to the newest commit and journal of removals, all at once.

A record is an object that is created once and never changes. Its key counts down, so that a listing gives the newest
first, and it carries the whole state: recovery is one LIST and one GET. An append that collides reads the winner: a
newer epoch fences the writer, anything else is taken over and the append is tried behind it. Records are never removed:
a stale writer would find its old place free again. Where the store ignores the condition there are no collisions, and
one writer at a time (`claims`).
"""

from __future__ import annotations

import functools
import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Literal

from blake3 import blake3
from pydantic import ValidationError

from trainlet.core.errors import Fenced, PlatformError, UserError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import claims, conditions

INVERSE = 10**10 - 1
FORMAT = 1
Kind = Literal["acquire", "commit", "tag", "gc", "release"]
_NAME = re.compile(r"(?P<inverse>\d{10})\.json")
MAX_TRIES = 1000
PUT_TRIES = 5
DAMAGED_BEHIND = 100  # damaged records that a reader looks past


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

    format: int = FORMAT
    epoch: int = 0
    commits: tuple[Commit, ...] = ()
    tags: dict[str, str] = {}

    def newest(self) -> Commit | None:
        """Return the newest commit."""
        return self.commits[-1] if self.commits else None

    def live_packs(self) -> set[str]:
        """Return the packs that live commits need."""
        return {pack for commit in self.commits for pack in commit.packs}


class Record(Value):
    """One record of the log."""

    kind: Kind
    seq: int
    epoch: int
    nonce: str
    state: State
    removed: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the object that is stored: canonical JSON, with a blake3 of the same JSON without it."""
        fields = self.model_dump(mode="json")
        return canonical_json({**fields, "b3": blake3(canonical_json(fields)).hexdigest()})

    @classmethod
    def from_bytes(cls, raw: bytes) -> Record:
        """Return the record; raises ValueError for damage, UserError for a newer format."""
        fields = json.loads(raw)
        if not isinstance(fields, dict) or fields.pop("b3", None) != blake3(canonical_json(fields)).hexdigest():
            raise ValueError("its blake3 differs")
        found = fields["state"]["format"]
        if isinstance(found, int) and found > FORMAT:
            raise UserError(f"The checkpoint log has format {found}, this trainlet reads up to {FORMAT}: update it.")
        return cls.model_validate(fields)


class DamagedRecord(PlatformError):
    """Raised for a record whose bytes are not what was written."""


class Log:
    """The log under `<prefix>/log/`. A reader needs nothing; a writer acquires its epoch first."""

    def __init__(self, store: ObjectStore, prefix: str, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._prefix = prefix
        self._pause = pause
        self._next = 0
        self._state = State()
        self._fenced: int | None = None  # the epoch that was shut out: a second try must not get in behind the winner
        self._claim: claims.Claim | None = None

    @property
    def alone(self) -> bool:
        """Say whether this writer must be the only one, because the store ignores conditions."""
        return self._claim is not None

    @property
    def state(self) -> State:
        """Return the state at the last record that was read or written."""
        return self._state

    def refresh(self) -> State:
        """Read the newest record that is whole. A LIST that fails raises: it is never an empty log."""
        self._next, self._state, self._fenced = 0, State(), None
        damaged: DamagedRecord | None = None
        looked = 0
        for item in self._store.list(f"{self._prefix}/log/"):
            match = _NAME.fullmatch(item.key.rsplit("/", 1)[1])
            if match is None or item.key.count("/") != self._prefix.count("/") + 2:
                continue
            seq = INVERSE - int(match["inverse"])
            self._next = max(self._next, seq + 1)
            try:
                self._state = self._read(seq).state
            except DamagedRecord as error:
                damaged = damaged or error
                looked += 1
                if looked < DAMAGED_BEHIND:
                    continue
                raise
            return self._state
        if damaged is not None:
            raise damaged
        return self._state

    @functools.cached_property
    def broken(self) -> str:
        """Say what the store does with writers that meet, empty when it is right; looked at once."""
        return conditions.broken(self._store)

    def acquire(self, epoch: int | None = None) -> int:
        """Become the writer of this epoch (None: of the next one); returns it. Raises Fenced when a newer one was here.

        On a store that ignores conditions a given epoch must be nobody else's, and without one this raises
        `claims.Occupied` while there is another writer.
        """
        if self.broken:
            return self._acquire_alone(epoch)
        for _ in range(MAX_TRIES):
            self.refresh()
            mine = self.state.epoch + 1 if epoch is None else epoch
            if self.state.epoch > mine:
                raise Fenced(_fenced(mine, self.state.epoch, self._prefix))
            try:
                self.append("acquire", mine, lambda state, mine=mine: state.model_copy(update={"epoch": mine}))  # type: ignore[misc]
            except Fenced:
                if epoch is not None:
                    raise
                continue
            return mine
        raise PlatformError(f"The checkpoint log {self._prefix} could not be acquired in {MAX_TRIES} tries.")

    def _acquire_alone(self, epoch: int | None) -> int:
        """Claim the log before it is read: what a writer before was told to be saved is there by then."""
        mine = self.refresh().epoch + 1 if epoch is None else epoch
        self._claim = claims.take(self._store, self._prefix, mine, given=epoch is not None)
        self.refresh()
        self._next = max(self._next, mine * claims.SEQUENCES)
        try:
            self.append("acquire", mine, lambda state: state.model_copy(update={"epoch": mine}))
        except Fenced:
            self.release()
            raise
        return mine

    def release(self) -> None:
        """Let another writer in, where there may be only one."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def append(self, kind: Kind, epoch: int, change: Callable[[State], State], removed: tuple[str, ...] = ()) -> State:
        """Append a record whose state is `change(state before)`; raises Fenced when another epoch has taken over.

        `change` is called again with the winner's state after a collision, and may raise to give up.
        """
        nonce = uuid.uuid4().hex
        for _ in range(MAX_TRIES):
            seq = self._next
            if self._fenced == epoch or self._state.epoch > epoch:
                raise Fenced(_fenced(epoch, self._state.epoch, self._prefix))
            if not 0 <= seq < INVERSE:
                raise PlatformError(f"The checkpoint log {self._prefix} holds a record that is none: seq {seq - 1}.")
            state = change(self._state)
            record = Record(kind=kind, seq=seq, epoch=epoch, nonce=nonce, state=state, removed=removed)
            if self._create(seq, record.to_bytes()):
                if self._claim is not None:
                    self._check_claim(self._claim, epoch)
                self._next, self._state = seq + 1, state
                return state
            winner = self._read(seq)
            self._next, self._state = seq + 1, winner.state
            if winner.nonce == nonce:
                return winner.state  # an earlier try of this very append got through
            if winner.state.epoch > epoch or (winner.state.epoch == epoch and winner.kind == "acquire"):
                self._fenced = epoch
        raise PlatformError(f"The checkpoint log {self._prefix} could not be appended to in {MAX_TRIES} tries.")

    def amend(self, kind: Kind, change: Callable[[State], State], removed: tuple[str, ...] = ()) -> State:
        """Append from outside, in the name of whoever owns the log: for pins and removals by a person."""
        alone = bool(self.broken)
        for _ in range(MAX_TRIES):
            state = self.refresh()
            try:
                if alone:
                    self._claim = claims.take(self._store, self._prefix, state.epoch, given=False)
                    state = self.refresh()
                return self.append(kind, state.epoch, change, removed)
            except Fenced:
                continue
            finally:
                self.release()
        raise PlatformError(f"The checkpoint log {self._prefix} could not be changed in {MAX_TRIES} tries.")

    def history(self) -> list[Record]:
        """Return every record that is readable, the newest first."""
        records: list[Record] = []
        for item in self._store.list(f"{self._prefix}/log/"):
            match = _NAME.fullmatch(item.key.rsplit("/", 1)[1])
            if match:
                records.append(self._read(INVERSE - int(match["inverse"])))
        return records

    def _create(self, seq: int, body: bytes) -> bool:
        """Create a record; False when there is one. A try without an answer is repeated with the same bytes."""
        for attempt in range(PUT_TRIES):
            try:
                self._store.create(self._key(seq), body)
                return True
            except FileExistsError:
                return False
            except PlatformError:
                if attempt + 1 == PUT_TRIES:
                    raise
                self._pause(0.05 * 2**attempt)
        raise AssertionError

    def _check_claim(self, claim: claims.Claim, epoch: int) -> None:
        """Believe an append only when nobody else has come before it was there."""
        try:
            claim.check()
        except Fenced:
            self._fenced = epoch
            raise

    def _key(self, seq: int) -> str:
        return f"{self._prefix}/log/{INVERSE - seq:010d}.json"

    def _read(self, seq: int) -> Record:
        try:
            record = Record.from_bytes(self._store.get(self._key(seq)))
        except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
            raise DamagedRecord(f"Record {seq} of the checkpoint log {self._prefix} is damaged: {error}") from error
        if record.seq != seq:
            raise DamagedRecord(f"Record {seq} of the checkpoint log {self._prefix} says that it is {record.seq}.")
        return record


def _fenced(epoch: int, newer: int, prefix: str) -> str:
    return f"Attempt {epoch} was superseded by attempt {newer} ({prefix}); nothing that it saves counts any more."
