"""Events in any order and any number of times; what does not fit is kept aside and counted nowhere."""

from __future__ import annotations

from collections.abc import Callable

from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state.database import Database

Make = Callable[..., LeaseEvent]


def seconds(database: Database, **which: str) -> int:
    with database.read() as tx:
        return reports.usage(tx, "default", **which).gpu_seconds


def test_any_one_event_creates_the_lease(database: Database, event: Make) -> None:
    with database.write() as tx:
        assert metering.ingest(tx, "default", [event("heartbeat", 12.7, seq=6)]) == 1
    assert seconds(database) == 12


def test_a_repeated_event_changes_nothing(database: Database, event: Make) -> None:
    one = event("heartbeat", 12)
    with database.write() as tx:
        assert metering.ingest(tx, "default", [one, one]) == 1
    with database.write() as tx:
        assert metering.ingest(tx, "default", [one]) == 0
        assert metering.refusals(tx, "default") == []
    assert seconds(database) == 12


def test_a_late_heartbeat_cannot_reopen_a_closed_lease(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("close", 10, seq=5)])
        metering.ingest(tx, "default", [event("heartbeat", 30, seq=9)])
        rows = reports.usage(tx, "default").rows
    assert [(row.seconds, row.open) for row in rows] == [(10, False)]


def test_the_same_id_with_another_payload_is_kept_aside_and_the_rest_counts(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1)])
        for _ in range(3):
            assert metering.ingest(tx, "default", [event("heartbeat", 99, seq=1)]) == 0
        assert metering.ingest(tx, "default", [event("heartbeat", 98, seq=1), event("heartbeat", 20, seq=2)]) == 1
        refused = metering.refusals(tx, "default")
    assert [one.event_id for one in refused] == ["run.train.1.0:1"] * 2, "each payload once, not each repetition"
    assert "another payload" in refused[0].reason
    assert seconds(database) == 20


def test_an_event_that_contradicts_its_lease_is_kept_aside(database: Database, event: Make) -> None:
    dear = Device(uuid="GPU-0", sku="H100-80GB")
    with database.write() as tx:
        metering.ingest(tx, "default", [event("open", 0, seq=0)])
        assert metering.ingest(tx, "default", [event("heartbeat", 5, seq=1, device=dear)]) == 0
        assert metering.ingest(tx, "default", [event("heartbeat", 5, seq=2, anchor_ns=1)]) == 0
        reasons = [one.reason for one in metering.refusals(tx, "default")]
    assert sorted(reasons) == ["its anchor_ns contradicts its lease", "its sku contradicts its lease"]
    assert seconds(database) == 0


def test_times_that_no_clock_shows_are_kept_aside(database: Database, event: Make) -> None:
    with database.write() as tx:
        assert metering.ingest(tx, "default", [event("open", 0, anchor_ns=-5), event("heartbeat", 1e12, index=1)]) == 0
        assert len(metering.refusals(tx, "default")) == 2


def test_projects_do_not_see_each_other(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("close", 10)])
        metering.ingest(tx, "other", [event("close", 7, task="run2.train", uuid="GPU-9")])
        assert reports.usage(tx, "other").gpu_seconds == 7
    assert seconds(database) == 10
    assert seconds(database, run_id="nobody") == 0
    assert seconds(database, task="run.train") == 10


def test_ten_thousand_events_fit_one_call(database: Database, event: Make) -> None:
    many = [event("heartbeat", seq, seq=seq) for seq in range(10_000)]
    with database.write() as tx:
        assert metering.ingest(tx, "default", many) == 10_000
        assert metering.ingest(tx, "default", many) == 0
    assert seconds(database) == 9_999


def test_a_contradiction_does_not_hold_up_other_leases(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("open", 0, seq=0), event("open", 0, seq=0, index=1)])
        wrong = event("heartbeat", 9, seq=1, anchor_ns=1)
        assert metering.ingest(tx, "default", [wrong, event("heartbeat", 9, seq=1, index=1)]) == 1
    assert seconds(database) == 9
