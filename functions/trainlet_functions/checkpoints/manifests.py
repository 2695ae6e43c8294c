"""Manifests: what one checkpoint consists of. Immutable; the commit record in the log holds the blake3 of its bytes."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints import packs
from trainlet_functions.checkpoints.log import Commit
from trainlet_functions.checkpoints.packs import TensorEntry

FORMAT = 1
MAX_BYTES = 512 << 20
_KEY = re.compile(r"\d{12}-\d{6}-[0-9a-f]{12}\.json")


class NewerFormat(UserError):
    """Raised for a checkpoint that only a newer trainlet can read: going back to an older one would hide it."""


class Manifest(Value):
    """One checkpoint: the trees of JSON by registered name, and the tensors that they refer to.

    `trees` are those of rank 0; `ranks` has the trees of the others where they differ.
    """

    format: int = FORMAT
    task: str
    step: int
    epoch: int
    created: str
    reason: str
    world: int = 1
    metrics: dict[str, float] = {}
    data: dict[str, int | None] = {}
    trees: dict[str, Any] = {}
    ranks: dict[str, dict[str, Any]] = {}
    tensors: dict[str, TensorEntry] = {}
    parent: str | None = None
    bytes_new: int = 0
    bytes_total: int = 0

    @property
    def packs(self) -> tuple[str, ...]:
        """Return the keys of the packs that it needs."""
        return tuple(sorted({part.pack for entry in self.tensors.values() for part in entry.slices}))


def write(store: ObjectStore, prefix: str, manifest: Manifest) -> tuple[str, str]:
    """Store a manifest; returns (key, blake3)."""
    raw = canonical_json(manifest.model_dump(mode="json"))
    key = f"{prefix}/manifests/{manifest.step:012d}-{manifest.epoch:06d}-{uuid.uuid4().hex[:12]}.json"
    store.create(key, raw)
    return key, blake3(raw).hexdigest()


def read(store: ObjectStore, prefix: str, commit: Commit) -> Manifest:
    """Return the verified manifest of a commit; raises PlatformError for damage, NewerFormat for a newer format."""
    folder, _, name = commit.manifest.rpartition("/")
    if folder != f"{prefix}/manifests" or not _KEY.fullmatch(name):
        raise PlatformError(f"The log of {prefix} names a manifest elsewhere: {commit.manifest!r}.")
    raw = store.get(commit.manifest)
    if len(raw) > MAX_BYTES or blake3(raw).hexdigest() != commit.digest:
        raise PlatformError(f"The manifest {commit.manifest} is damaged (blake3 differs).")
    try:
        fields = json.loads(raw)
        version = int(fields.get("format", 0))
        if version > FORMAT:
            raise NewerFormat(
                f"The checkpoint of step {commit.step} has format {version}, this trainlet reads up to {FORMAT}. "
                "Update trainlet, or remove that checkpoint with `trainlet checkpoints rm`."
            )
        manifest = Manifest.model_validate(fields)
    except (ValueError, TypeError, AttributeError, RecursionError, ValidationError) as error:
        raise PlatformError(f"The manifest {commit.manifest} is damaged: {error}") from error
    for entry_name, entry in manifest.tensors.items():
        packs.check(entry_name, entry, prefix)
    return manifest
