"""A meter on its own database; events are made by a small factory, time moves only by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions.state.database import Database

ANCHOR_NS = 1_767_225_600_400_000_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return an empty database."""
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", ManualClock())
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def event() -> Callable[..., LeaseEvent]:
    """Return a factory of lease events: `event("heartbeat", 12.5, seq=3)`."""

    def make(kind: str, held_s: float, *, seq: int = 1, index: int = 0, **changes: Any) -> LeaseEvent:
        task, epoch = changes.pop("task", "run.train"), changes.pop("epoch", 1)
        lease = changes.pop("lease", f"{task}.{epoch}.{index}")
        uuid = changes.pop("uuid", f"GPU-{index}")
        fields: dict[str, Any] = {
            "id": f"{lease}:{seq}",
            "kind": kind,
            "lease": lease,
            "seq": seq,
            "task": task,
            "epoch": epoch,
            "run_id": "run",
            "function": "train",
            "device": Device(uuid=uuid, sku="A100-80GB"),
            "anchor_ns": ANCHOR_NS,
            "elapsed_ns": round(held_s * 1e9),
        }
        return LeaseEvent.model_validate({**fields, **changes})

    return make
