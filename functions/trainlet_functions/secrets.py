"""Secrets of a step: found by name where the worker runs, handed to the child only, masked in everything it prints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainlet.core.errors import UserError

MASK = "***"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")
SHORTEST = 4  # masking shorter values would garble every line


def variable(name: str) -> str:
    """Return the environment variable that the child finds the secret in: `hf-token` is `HF_TOKEN`."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def lookup(home: Path, name: str) -> str:
    """Return a secret's value: `TRAINLET_SECRET_<NAME>`, a mounted file, or a 0600 file under the home.

    Raises UserError that says where to put it.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is not the name of a secret: letters, digits, '.', '_' and '-'.")
    from_environment = os.environ.get(f"TRAINLET_SECRET_{variable(name)}")
    if from_environment is not None:
        return from_environment
    mounted = os.environ.get("TRAINLET_SECRETS_DIR")
    if mounted and (Path(mounted) / name).is_file():
        return (Path(mounted) / name).read_text().rstrip("\n")
    path = home / "secrets" / name
    if not path.is_file():
        raise UserError(
            f"There is no secret {name!r}. Put it into {path} (chmod 600), or set TRAINLET_SECRET_{variable(name)}."
        )
    if path.stat().st_mode & 0o077:
        raise UserError(f"The secret {path} can be read by others. Run: chmod 600 {path}")
    return path.read_text().rstrip("\n")


class Masker:
    """Replaces the values of secrets in text."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST}
        longest_first = sorted(parts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mask(self, text: str) -> str:
        """Return the text without any secret."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)
