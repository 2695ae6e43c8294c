"""Tags of runs, steps and tasks travel with the claim, so that the meter writes them on every lease."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from trainlet.core import traces, wire
from trainlet.core.clocks import ManualClock
from trainlet.core.errors import UserError
from trainlet_functions.metering.tables import leases
from trainlet_functions.state import runs
from trainlet_functions.worker.meter import Meter


def test_a_lease_has_the_tags_of_run_step_and_task_and_the_nearest_wins(world: Any, tmp_path: Path) -> None:
    world.install(("GPU-0", "L4"))
    world.deploy("train", gpus=(("L4", 1),), tags={"team": "vision", "stage": "step"})
    body = wire.RunCreate(pipeline="p", labels={"team": "run", "cost": "42", traces.LABEL: "00-1-2-01"})
    world.do(runs.create, "default", "run", body)
    claim = world.running("run.train", function="train", labels={"stage": "task"})
    meter = Meter(claim, tmp_path, ManualClock())
    world.beat("run.train", usage=meter.read())
    with world.database.read() as tx:
        found = [json.loads(row.tags) for row in tx.all(sa.select(leases))]
    assert found == [{"team": "vision", "cost": "42", "stage": "task"}]


def test_a_task_whose_tags_no_bill_holds_is_refused_when_it_is_created(world: Any) -> None:
    world.deploy("train", tags={str(number): "x" for number in range(40)})
    with pytest.raises(UserError, match="80 tags"):
        world.create("run.train", function="train", labels={f"l{number}": "x" for number in range(40)})
