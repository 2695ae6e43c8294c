"""The three pydantic bases: values are frozen, requests are strict, replies tolerate what a newer peer adds.

Validators are built when a model is first used: a pod that waits needs a few of them, and starts 0.1 s earlier.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# Beside one of these a field may set another kind of bound, never the same: one of the two would be lost.
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]  # what a column of a database holds
Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
Duration = Annotated[float, Field(le=100 * 365 * 86_400)]  # seconds; nothing here takes a hundred years


class Value(BaseModel):
    """A frozen value; unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Request(BaseModel):
    """A body that comes from outside; unknown fields are an error that names them."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Reply(BaseModel):
    """A body that the API answers with; fields that a newer API adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def canonical_json(value: Any) -> bytes:
    """Serialise JSON data to the one byte string that is hashed and signed (sorted keys, no spaces, UTF-8)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hexadecimal sha256 of data."""
    return hashlib.sha256(data).hexdigest()
