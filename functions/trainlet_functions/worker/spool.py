"""The usage of the running attempt on disk, so that a killed worker's last seconds are still billed, once.

The file holds the newest event of each lease; earlier ones are implied (the fold takes the greatest heartbeat). It is
replaced atomically every second and removed when the API has acknowledged the end. Samples of the devices lie beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from trainlet.core.samples import DeviceSample
from trainlet.core.wire import LeaseEvent

_Record = TypeVar("_Record", bound=BaseModel)
NAME = "usage.json"
SAMPLES = "samples.json"


def save(folder: Path, events: Sequence[LeaseEvent]) -> None:
    """Replace the spool."""
    _save(folder, NAME, events)


def clear(folder: Path) -> None:
    """Remove the spool: everything in it was acknowledged."""
    (folder / NAME).unlink(missing_ok=True)


def read_leftover(folder: Path) -> list[LeaseEvent]:
    """Return what a dead worker left; a damaged file (cut off by a full disk) counts as nothing."""
    return _read(folder / NAME, LeaseEvent)


def save_samples(folder: Path, samples: Sequence[DeviceSample]) -> None:
    """Replace the samples."""
    _save(folder, SAMPLES, samples)


def clear_samples(folder: Path) -> None:
    """Remove the samples."""
    (folder / SAMPLES).unlink(missing_ok=True)


def read_leftover_samples(folder: Path) -> list[DeviceSample]:
    """Return the samples that a dead worker left, none where the file is damaged."""
    return _read(folder / SAMPLES, DeviceSample)


def _save(folder: Path, name: str, records: Sequence[BaseModel]) -> None:
    temporary = folder / f".{name}.{os.getpid()}"
    temporary.write_text(json.dumps([record.model_dump(mode="json") for record in records]))
    temporary.replace(folder / name)


def _read(path: Path, kind: type[_Record]) -> list[_Record]:
    try:
        return [kind.model_validate(item) for item in json.loads(path.read_text())]
    except (OSError, ValueError, ValidationError):
        return []
