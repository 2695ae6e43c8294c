"""A state that cannot be uploaded within the grace of a stop is uploaded all the time, and the person is told once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainlet.client.stores import DirectoryStore
from trainlet.core.clocks import ManualClock
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import Checkpointer, list_checkpoints


@pytest.mark.parametrize(("grace_s", "uploads"), [(5.0, 5), (3600.0, 1)])
def test_uploads_follow_each_other_when_the_grace_is_too_short(tmp_path: Path, grace_s: float, uploads: int) -> None:
    clock = ManualClock()
    said: list[tuple[str, dict[str, Any]]] = []
    store = DirectoryStore(tmp_path / "store")
    weights = np.zeros(1 << 18)
    made = Checkpointer(
        store,
        "runs/r.train",
        1,
        policy=CheckpointPolicy(every_s=600),
        clock=clock,
        grace_s=grace_s,
        emit=lambda kind, fields: said.append((kind, fields)),
    )
    made.register(weights=weights)
    clock.advance(601)
    for step in range(1, 6):
        weights[:] = step
        made.step(step)
        clock.advance(60)
    assert sum(kind == "checkpoint" for kind, _ in said) == uploads
    assert len(list_checkpoints(store, "runs/r.train")) == min(uploads, 3)
    warnings = [str(fields["message"]) for kind, fields in said if kind == "warning"]
    assert len(warnings) == (1 if uploads > 1 else 0)
    assert all("does not fit into grace=5 s" in one and "Raise grace=" in one for one in warnings)
