"""The wake-up event: its type, its source, and the bytes that are signed.

A CloudEvent 1.0 in binary mode. The extension `trainletsig` holds an Ed25519 signature over what a worker acts upon, so
that nobody but the training API can send a worker after work.
"""

from __future__ import annotations

from trainlet.core.models import canonical_json, sha256_hex

OWN_TYPE = "dev.trainlet."
WAKE_UP = "dev.trainlet.step.requested"
SIGNATURE = "trainletsig"
HEADER_PREFIX = "ce-"


def source(project: str) -> str:
    """Return the CloudEvents source of a project."""
    return f"/projects/{project}"


def signed_bytes(kind: str, origin: str, event_id: str, subject: str, data: bytes) -> bytes:
    """Return the canonical bytes that the signature covers."""
    fields = {
        "specversion": "1.0",
        "type": kind,
        "source": origin,
        "id": event_id,
        "subject": subject,
        "datahash": sha256_hex(data),
    }
    return canonical_json(fields)
