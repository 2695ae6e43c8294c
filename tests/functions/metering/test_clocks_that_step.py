"""Wall clocks step; the bill does not: durations come from a clock that never does, the anchor from the API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state.database import Database


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_during_a_lease_changes_no_bill(
    tmp_path: Path, event: Callable[..., LeaseEvent], step_s: float
) -> None:
    clock = ManualClock()
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", clock)
    database.migrate()
    anchor_ns, start_ns = clock.wall_ns(), clock.boot_ns()
    for seq in range(10):
        clock.advance(2.5)
        if seq == 4:
            clock.step_wall(step_s)
        held_s = (clock.boot_ns() - start_ns) / 1e9
        with database.write() as tx:
            metering.ingest(tx, "default", [event("heartbeat", held_s, seq=seq, anchor_ns=anchor_ns)])
    with database.read() as tx:
        rows = reports.usage(tx, "default").rows
    database.close()
    assert [(row.start_s, row.seconds) for row in rows] == [(anchor_ns // 10**9, 25)]
