"""What the platform gave up ends at the last heartbeat it accepted; what its worker says later changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from trainlet.core.wire import LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.state.database import Database

Make = Callable[..., LeaseEvent]


def test_it_ends_at_the_last_accepted_heartbeat(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1), event("heartbeat", 12.9, seq=2)])
        metering.close_stale(tx, "run.train", 1)
        rows = reports.usage(tx, "default").rows
    assert [(row.seconds, row.open) for row in rows] == [(12, False)]


def test_T2_late_usage_of_an_older_epoch_is_not_counted(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1)])
        metering.close_stale(tx, "run.train", 1)
        metering.ingest(tx, "default", [event("heartbeat", 60, seq=2), event("close", 61, seq=3)])
        assert reports.usage(tx, "default").gpu_seconds == 10


def test_a_lease_first_heard_of_after_that_counts_nothing(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.close_stale(tx, "run.train", 1)
        metering.ingest(tx, "default", [event("heartbeat", 60)])
        report = reports.usage(tx, "default")
    assert report.gpu_seconds == 0
    assert report.rows == []


def test_giving_up_twice_is_giving_up_once(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1)])
        metering.close_stale(tx, "run.train", 1)
        metering.ingest(tx, "default", [event("heartbeat", 60, seq=2)])
        metering.close_stale(tx, "run.train", 1)
        assert reports.usage(tx, "default").gpu_seconds == 10


def test_the_next_epoch_is_metered_as_usual(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10)])
        metering.close_stale(tx, "run.train", 1)
        anchor_ns = event("open", 0).anchor_ns + 30_000_000_000
        metering.ingest(tx, "default", [event("heartbeat", 5, epoch=2, anchor_ns=anchor_ns)])
        rows = reports.usage(tx, "default").rows
    assert [(row.epoch, row.seconds, row.open) for row in rows] == [(1, 10, False), (2, 5, True)]


def test_what_was_lost_with_its_worker_is_kept_at_no_charge(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1, saved_ns=6_000_000_000)])
        metering.close_stale(tx, "run.train", 1)
        rows = reports.usage(tx, "default").rows
        metering.rebuild(tx)
        assert reports.usage(tx, "default").rows == rows
    assert [(row.phase, row.seconds, row.cost_nano == 0) for row in rows] == [("run", 6, False), ("lost", 4, True)]


def test_a_task_that_was_told_to_stop_and_did_not_pays_for_its_time(database: Database, event: Make) -> None:
    with database.write() as tx:
        metering.ingest(tx, "default", [event("heartbeat", 10, seq=1)])
        metering.close_stale(tx, "run.train", 1, fault=False)
        rows = reports.usage(tx, "default").rows
    assert [(row.phase, row.seconds) for row in rows] == [("run", 10)]
