"""Time slicing: a device is leased in parts of 5040, each part is fenced by itself, and no part is billed twice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trainlet.core.wire import LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state.database import Database

Make = Callable[..., LeaseEvent]
HALF = 2520
EXAMPLES = itertools.count()


def test_two_halves_of_a_device_run_side_by_side(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "a", [event("close", 10, task="a.t", uuid="GPU-0", share=HALF)])
        metering.ingest(tx, "b", [event("close", 10, task="b.t", uuid="GPU-0", share=HALF, part=HALF)])
        costs = [reports.usage(tx, project).cost_nano for project in ("a", "b")]
        whole = tx.prices.versions[0].nano_per_second("A100-80GB")
    assert whole is not None
    assert sum(costs) == 10 * whole


def test_a_lease_of_a_part_ends_the_older_leases_of_that_part_only(database: Database, event: Make) -> None:
    anchor_ns = event("open", 0).anchor_ns
    with database.write() as tx:
        metering.ingest(tx, "p", [event("close", 10, task="r.low", uuid="GPU-0", share=HALF)])
        metering.ingest(tx, "p", [event("close", 10, task="r.high", uuid="GPU-0", share=HALF, part=HALF)])
        later = event("close", 10, task="r.next", uuid="GPU-0", share=HALF, anchor_ns=anchor_ns + 4 * 10**9)
        metering.ingest(tx, "p", [later])
        seconds = {task: reports.usage(tx, "p", task=task).gpu_seconds for task in ("r.low", "r.high", "r.next")}
    assert seconds == {"r.low": 4, "r.high": 10, "r.next": 10}


def test_more_parts_than_a_device_has_are_refused(event: Make) -> None:
    with pytest.raises(ValidationError, match="5040"):
        event("open", 0, share=HALF, part=HALF + 1)


@given(st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_I3_no_second_of_a_part_is_billed_twice(database: Database, event: Make, data: st.DataObject) -> None:
    example = f"p{next(EXAMPLES)}"  # the database is shared by all examples
    leases: list[Any] = []
    for number in range(data.draw(st.integers(1, 5))):
        part = data.draw(st.sampled_from([0, 1680, 3360]))
        share = data.draw(st.sampled_from([1680, 5040 - part]))
        start_ns = event("open", 0).anchor_ns + data.draw(st.integers(0, 20)) * 500_000_000
        held_s = data.draw(st.integers(0, 20)) / 2
        fields = {"uuid": f"GPU-{example}", "share": share, "part": part, "anchor_ns": start_ns}
        leases.append(event("close", held_s, task=f"{example}.t{number}", **fields))
    with database.write() as tx:
        for one in data.draw(st.permutations(leases)):
            metering.ingest(tx, example, [one])
        rows = reports.usage(tx, example).rows
    spans = {one.lease: (one.part, one.part + one.share) for one in leases}
    thirds = ((0, 1680), (1680, 3360), (3360, 5040))
    booked = Counter(
        (second, third)
        for row in rows
        for second in range(row.start_s, row.end_s)
        for third in thirds
        if spans[row.lease][0] <= third[0] and third[1] <= spans[row.lease][1]
    )
    assert not [key for key, times in booked.items() if times > 1]
