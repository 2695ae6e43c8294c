"""Manifests: what one checkpoint consists of. Immutable; the commit record in the log holds the blake3 of its bytes."""

from __future__ import annotations

import json
import uuid
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from trainlet.core.errors import PlatformError
from trainlet.core.models import Value, canonical_json
from trainlet.core.protocols import ObjectStore
from trainlet_functions.checkpoints.log import Commit
from trainlet_functions.checkpoints.packs import TensorEntry

FORMAT = 1


class Manifest(Value):
    """One checkpoint: the trees of JSON by registered name, and the tensors that they refer to."""

    format: int = FORMAT
    task: str
    step: int
    epoch: int
    created: str
    reason: str
    metrics: dict[str, float] = {}
    data: dict[str, int | None] = {}
    trees: dict[str, Any] = {}
    tensors: dict[str, TensorEntry] = {}
    parent: str | None = None
    bytes_new: int = 0
    bytes_total: int = 0


def write(store: ObjectStore, prefix: str, manifest: Manifest) -> tuple[str, str]:
    """Store a manifest; returns (key, blake3)."""
    raw = canonical_json(manifest.model_dump(mode="json"))
    key = f"{prefix}/manifests/{manifest.step:012d}-{manifest.epoch:06d}-{uuid.uuid4().hex[:12]}.json"
    store.create(key, raw)
    return key, blake3(raw).hexdigest()


def read(store: ObjectStore, commit: Commit) -> Manifest:
    """Return the verified manifest of a commit; raises PlatformError for damage or a newer format."""
    raw = store.get(commit.manifest)
    if blake3(raw).hexdigest() != commit.digest:
        raise PlatformError(f"The manifest {commit.manifest} is damaged (blake3 differs).")
    try:
        fields = json.loads(raw)
        if int(fields.get("format", 0)) > FORMAT:
            raise PlatformError(
                f"The checkpoint has format {fields['format']}, this trainlet reads up to {FORMAT}. Update it."
            )
        return Manifest.model_validate(fields)
    except (ValueError, ValidationError) as error:
        raise PlatformError(f"The manifest {commit.manifest} is damaged: {error}") from error
