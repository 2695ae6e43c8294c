"""The usage of the running attempt on disk, so that a killed worker's last seconds are still billed, once.

The file holds the newest event of each lease; earlier ones are implied (the fold takes the greatest heartbeat). It is
replaced atomically every second and removed when the API has acknowledged the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from trainlet.core.wire import LeaseEvent

NAME = "usage.json"


def save(folder: Path, events: Sequence[LeaseEvent]) -> None:
    """Replace the spool."""
    temporary = folder / f".{NAME}.{os.getpid()}"
    temporary.write_text(json.dumps([event.model_dump(mode="json") for event in events]))
    temporary.replace(folder / NAME)


def clear(folder: Path) -> None:
    """Remove the spool: everything in it was acknowledged."""
    (folder / NAME).unlink(missing_ok=True)


def read_leftover(folder: Path) -> list[LeaseEvent]:
    """Return what a dead worker left; a damaged file (cut off by a full disk) counts as nothing."""
    try:
        return [LeaseEvent.model_validate(item) for item in json.loads((folder / NAME).read_text())]
    except (OSError, ValueError, ValidationError):
        return []
