"""Wall clocks step; the bill does not: durations come from a clock that never does, the anchor from the API."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import ClaimReply, Device, TaskView
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state.database import Database
from trainlet_functions.worker.meter import Meter

STEPS = st.sampled_from((0.0, -3600.0, 3600.0, -1.0, 0.4, 86_400.0 * 400))
WHEN = "2026-01-01T00:00:00.000Z"


def claim(key: str, anchor_ns: int) -> ClaimReply:
    named = {"project": "p", "run_id": "run", "node": "f", "function": "f", "digest": "0" * 64, "state": "running"}
    task = TaskView(key=key, created_at=WHEN, updated_at=WHEN, **named)
    devices = [Device(uuid=f"GPU-{key}", sku="A100-80GB")]
    return ClaimReply.model_construct(task=task, epoch=1, devices=devices, tags={}, wall_anchor_ns=anchor_ns)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(beats=st.lists(st.tuples(st.floats(0.01, 7200), STEPS), min_size=1, max_size=8), skew_s=STEPS)
@example(beats=[(2.5, -3600.0), (2.5, 3600.0)], skew_s=3600.0)
def test_I12_no_step_of_a_workers_wall_clock_changes_its_bill(
    database: Database, tmp_path: Path, beats: list[tuple[float, float]], skew_s: float
) -> None:
    """The wall clock of the worker steps back and forth and is wrong from the start; the API's is right."""
    here, there = database.clock, ManualClock()
    assert isinstance(here, ManualClock)
    there.step_wall(skew_s)
    key, anchor_ns, begun_ns = f"t{here.wall_ns()}", here.wall_ns(), there.boot_ns()
    meter = Meter(claim(key, anchor_ns), tmp_path, there)
    for held_s, step_s in beats:
        here.advance(held_s)
        there.advance(held_s)
        there.step_wall(step_s)
        with database.write() as tx:
            assert metering.ingest(tx, "default", meter.read()) == 1
    with database.write() as tx:
        metering.ingest(tx, "default", meter.close())
        rows = reports.usage(tx, "default", task=key).rows
    here.advance(1)
    assert sum(row.seconds for row in rows) == (there.boot_ns() - begun_ns) // 10**9
    assert not rows or rows[0].start_s == -(-anchor_ns // 10**9)
