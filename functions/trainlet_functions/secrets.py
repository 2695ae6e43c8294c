"""Secrets of a step: found by name where the worker runs, handed to the child only, masked in everything it prints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainlet.client import secrets as kept
from trainlet.client.secrets import variable as variable  # for those who hand secrets to a child

MASK = "***"
SHORTEST = 4  # masking shorter values would garble every line


def lookup(home: Path, name: str) -> str:
    """Return a secret's value: `TRAINLET_SECRET_<NAME>`, a mounted file, or what this machine keeps for the home.

    Raises UserError that says where to put it.
    """
    kept.check_name(name)
    from_environment = os.environ.get(f"TRAINLET_SECRET_{variable(name)}")
    if from_environment is not None:
        return from_environment
    mounted = os.environ.get("TRAINLET_SECRETS_DIR")
    if mounted and (Path(mounted) / name).is_file():
        return (Path(mounted) / name).read_text().rstrip("\n")
    return kept.get(home, name)


def environment(home: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the variables that hand secrets to a step; raises UserError as `lookup` does."""
    return {variable(name): lookup(home, name) for name in names}


class Masker:
    """Replaces the values of secrets in text."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= SHORTEST}
        longest_first = sorted(parts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mask(self, text: str) -> str:
        """Return the text without any secret."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)
