"""What a key may look like, checked before any store sees it."""

from __future__ import annotations

import re

from trainlet.core.errors import UserError

_KEY = re.compile(r"[A-Za-z0-9_.=@+-]+(/[A-Za-z0-9_.=@+-]+)*")


def check_key(key: str) -> str:
    """Return the key; raises UserError for an absolute path, `..`, a leading dot or an unusual character."""
    if not _KEY.fullmatch(key) or any(part.startswith(".") for part in key.split("/")) or len(key) > 900:
        raise UserError(f"{key!r} is not a valid store key: relative, no '..', letters, digits and _.=@+- only.")
    return key
