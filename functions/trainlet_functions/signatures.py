"""Ed25519 signatures of events: the API signs with a key that only it has, workers verify with the public half.

Shared secrets with others (hooks, sinks) are derived from the same key, so that none has to be stored.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trainlet.core.errors import PlatformError
from trainlet.core.models import canonical_json


class Signer:
    """Holds the private key of one platform, kept in a 0600 file."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public_key = base64.b64encode(raw).decode()

    @classmethod
    def load(cls, path: Path) -> Signer:
        """Read the key file, or make it; raises PlatformError for a file that others can read."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if path.stat().st_mode & 0o037:  # the group may read: a Secret in a pod is the group's
                raise PlatformError(f"{path} can be read by others; run: chmod 600 {path}") from None
            return cls(Ed25519PrivateKey.from_private_bytes(path.read_bytes()))
        key = Ed25519PrivateKey.generate()
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.private_bytes_raw())
        return cls(key)

    def sign(self, data: bytes) -> str:
        """Return the signature as URL-safe base64 without padding."""
        return base64.urlsafe_b64encode(self._key.sign(data)).decode().rstrip("=")

    def derive(self, *purpose: str | int) -> bytes:
        """Return 32 secret bytes that follow from the key and the purpose; other purposes have others."""
        info = b"trainlet secret " + canonical_json(list(purpose))
        return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(self._key.private_bytes_raw())


def verify(public_key: str, signature: str, data: bytes) -> bool:
    """Say whether the signature over the data was made by the key (base64 of the raw public key)."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key))
        key.verify(base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4)), data)
    except (InvalidSignature, ValueError):
        return False
    return True
