"""Properties of the ledger, for histories that hypothesis makes up: any order, any repetition, any overlap."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent, UsageRow
from trainlet_functions import metering
from trainlet_functions.billing import reports
from trainlet_functions.metering import fold, tables
from trainlet_functions.metering.segments import SECOND_NS, Segment, billable, segments_of, split_at
from trainlet_functions.state.database import Database

BASE_NS = 1_767_225_600 * SECOND_NS
moments = st.integers(0, 40 * SECOND_NS)


@st.composite
def histories(draw: st.DrawFn) -> list[LeaseEvent]:
    """Draw the events of several leases on two devices, which may overlap by mistake."""
    events: list[LeaseEvent] = []
    for number in range(draw(st.integers(1, 4))):
        lease = f"run.t{number}.1.0"
        device = Device(uuid=f"GPU-{draw(st.integers(0, 1))}", sku="A100-80GB")
        anchor_ns = BASE_NS + draw(st.sampled_from([0, 5 * SECOND_NS, 5 * SECOND_NS + 1]) | moments)
        marks = sorted(draw(st.lists(moments, max_size=3)))
        for seq, held_ns in enumerate(sorted(draw(st.lists(moments, min_size=1, max_size=4)))):
            passed = [mark for mark in marks if mark <= held_ns]
            events.append(
                LeaseEvent(
                    id=f"{lease}:{seq}",
                    kind=draw(st.sampled_from(["open", "heartbeat", "heartbeat", "close"])),
                    lease=lease,
                    seq=seq,
                    task=f"run.t{number}",
                    epoch=1,
                    run_id="run",
                    function="train",
                    device=device,
                    anchor_ns=anchor_ns,
                    elapsed_ns=held_ns,
                    phases=(("setup", 0), *((f"p{place}", mark) for place, mark in enumerate(passed))),
                )
            )
    return events


def ledger(batches: list[list[LeaseEvent]], *, rebuild: bool = False, give_up: str | None = None) -> list[UsageRow]:
    """Return the rows of a fresh database after these batches."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'state.db'}", ManualClock())
        try:
            tables.leases.metadata.create_all(database.engine)
            with database.write() as tx:
                for place, batch in enumerate(batches):
                    metering.ingest(tx, "default", batch)
                    if give_up and place == len(batches) // 2:
                        metering.close_stale(tx, give_up, 1)
                before = stored(tx)
                if rebuild:
                    metering.rebuild(tx)
                    assert stored(tx) == before
                return reports.usage(tx, "default").rows
        finally:
            database.close()


def stored(tx: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in tx.all(sa.select(tables.leases).order_by(tables.leases.c.lease))]


@given(histories(), st.data())
@settings(max_examples=25, deadline=None)
def test_I1_order_repetition_and_batching_change_nothing(events: list[LeaseEvent], data: st.DataObject) -> None:
    repeated = events + data.draw(st.lists(st.sampled_from(events), max_size=6))
    mixed = data.draw(st.permutations(repeated))
    cut = data.draw(st.integers(0, len(mixed)))
    assert ledger([mixed[:cut], mixed[cut:]]) == ledger([events])


@given(histories(), st.data())
@settings(max_examples=25, deadline=None)
def test_M1_no_gpu_second_is_billed_twice_and_less_than_one_is_lost(
    events: list[LeaseEvent], data: st.DataObject
) -> None:
    rows = ledger([[event] for event in data.draw(st.permutations(events))])
    booked = Counter((row.device, second) for row in rows for second in range(row.start_s, row.end_s))
    assert not [key for key, times in booked.items() if times > 1]
    for lease in {event.lease for event in events}:
        held_ns = held_of(lease, events)
        billed_s = sum(row.seconds for row in rows if row.lease == lease)
        assert 0 <= held_ns - billed_s * SECOND_NS < SECOND_NS


def held_of(lease: str, events: list[LeaseEvent]) -> int:
    """Return what a lease held by plain words: to its first close or last heartbeat, or the next lease's start."""
    mine = [event for event in events if event.lease == lease]
    closes = [event.elapsed_ns for event in mine if event.kind == "close"]
    end_ns = min(closes) if closes else max(event.elapsed_ns for event in mine)
    place = (mine[0].anchor_ns, lease)
    others = [event for event in events if event.device.uuid == mine[0].device.uuid]
    later = [event.anchor_ns for event in others if (event.anchor_ns, event.lease) > place and event.lease != lease]
    return min([end_ns, *(anchor_ns - place[0] for anchor_ns in later)])


@given(histories(), st.data())
@settings(max_examples=25, deadline=None)
def test_I7_a_rebuild_from_the_logs_gives_the_same_ledger(events: list[LeaseEvent], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(events))
    given_up = data.draw(st.sampled_from([None, "run.t0", "run.t1"]))
    batches = [[event] for event in mixed]
    assert ledger(batches, rebuild=True, give_up=given_up) == ledger(batches, give_up=given_up)


held = st.builds(
    fold.Held,
    moments,
    st.none() | moments,
    st.lists(st.tuples(st.sampled_from("ab"), moments), max_size=3).map(tuple),
)


@given(held, held, held)
def test_the_fold_is_commutative_associative_and_idempotent(a: fold.Held, b: fold.Held, c: fold.Held) -> None:
    assert a.joined(b) == b.joined(a)
    assert a.joined(b).joined(c) == a.joined(b.joined(c))
    assert a.joined(a) == a


@given(histories())
def test_what_many_events_say_is_what_each_says_joined(events: list[LeaseEvent]) -> None:
    assert fold.folded(events) == functools.reduce(fold.Held.joined, map(fold.said_by, events))


@given(st.integers(BASE_NS, BASE_NS + 100 * SECOND_NS), st.integers(0, 10**13))
def test_I2_billed_is_never_more_than_held_and_less_than_a_second_under(anchor_ns: int, elapsed_ns: int) -> None:
    start_s, end_s = billable(anchor_ns, elapsed_ns)
    assert 0 <= elapsed_ns - (end_s - start_s) * SECOND_NS < SECOND_NS
    assert 0 <= start_s * SECOND_NS - anchor_ns < SECOND_NS


@given(st.lists(st.integers(0, 5 * SECOND_NS), min_size=2, max_size=20))
def test_I3_back_to_back_leases_share_no_second(lengths: list[int]) -> None:
    seen: set[int] = set()
    at_ns = BASE_NS + 123_456_789
    for length in lengths:
        seconds = range(*billable(at_ns, length))
        assert seen.isdisjoint(seconds)
        seen.update(seconds)
        at_ns += length


@given(st.lists(moments, max_size=5), st.integers(0, 60 * SECOND_NS), st.lists(st.integers(-5, 70), max_size=6))
def test_I4_phases_and_any_cuts_keep_every_second(marks: list[int], elapsed_ns: int, cuts: list[int]) -> None:
    anchor_ns = BASE_NS + 400_000_000
    pieces = segments_of(anchor_ns, elapsed_ns, [(f"p{place}", mark) for place, mark in enumerate(marks)])
    cut = split_at(pieces, [BASE_NS // SECOND_NS + place for place in cuts])
    start_s, end_s = billable(anchor_ns, elapsed_ns)
    for segments in (pieces, cut):
        assert [second for one in segments for second in range(one.start_s, one.end_s)] == list(range(start_s, end_s))
        assert all(one.seconds > 0 for one in segments)


def test_a_lease_is_cut_at_its_phase_marks_on_whole_seconds() -> None:
    anchor_ns = 100 * SECOND_NS + 1
    marks = [("setup", 0), ("run", 2_900_000_000), ("save", 3_100_000_000)]
    assert segments_of(anchor_ns, 6 * SECOND_NS, marks) == [
        Segment("setup", 101, 103),
        Segment("run", 103, 104),
        Segment("save", 104, 107),
    ]
