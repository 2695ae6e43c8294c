"""Answers that come line by line, and when they are whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from trainlet.client.errors import ApiUnreachable
from trainlet.core import bills


def lines(parts: Iterator[bytes]) -> Iterator[str]:
    """Yield lines that end with a newline, and with nothing else: text may hold what Unicode calls a line separator."""
    rest = b""
    for part in parts:
        *whole_lines, rest = (rest + part).split(b"\n")
        for line in whole_lines:
            yield line.removesuffix(b"\r").decode()
    if rest:
        yield rest.decode()


def whole(parts: Iterator[str], url: str) -> Iterator[bills.Row]:
    """Yield the rows of a snapshot; the last line must say that these were all."""
    count = cost_nano = 0
    digest = hashlib.sha256()
    before: str | None = None
    for line in parts:
        if before is not None:
            row = bills.Row.read(json.loads(before))
            digest.update(before.encode() + b"\n")
            count, cost_nano = count + 1, cost_nano + (row.cost_nano or 0)
            yield row
        before = line
    end = bills.SnapshotEnd.model_validate_json(before or "")
    if (end.rows, end.cost_nano, end.digest) != (count, cost_nano, digest.hexdigest()):
        raise ApiUnreachable(f"The billing rows from {url} are not all there ({count} of {end.rows}). Try again.")
