"""A month of three projects in which everything goes wrong is closed, exported and verified: nothing is lost or doubled.

What it must come to is computed beside the platform, lease by lease, from what the workers said and what of it arrived.
"""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainlet.client import streams
from trainlet.client.stores import DirectoryStore
from trainlet.core.bills import EVERY_PROJECT, Period, Snapshot
from trainlet.core.clocks import ManualClock
from trainlet.core.wire import Device, LeaseEvent
from trainlet_functions import metering
from trainlet_functions.billing import book, closing, snapshots
from trainlet_functions.billing.prices import PriceList, PriceVersion
from trainlet_functions.exports import verifying, writing
from trainlet_functions.state.database import Database

pytest.importorskip("pyarrow")
JULY, AUGUST, SEPTEMBER = Period(2026, 7), Period(2026, 8), Period(2026, 9)
EXPORTS = ((JULY, "1.2"), (AUGUST, "1.4"))
SECOND, HOUR, DAY = 10**9, 3600, 86_400
PROJECTS = ("llm", "speech", "vision")
FLEET = (
    ("llm", "L4"),
    ("llm", "H100-80GB/1g.10gb"),
    ("speech", "A100-80GB"),
    ("speech", "L4"),
    ("vision", "A100-80GB"),
)
# From when, and what a second costs: list, spot, and list for `speech`, which has 10 % off. The last was applied late.
PRICES = (
    (JULY.start_s - DAY, "v1", {"L4": 1_000_000, "A100-80GB": 3_000_000, "H100-80GB/1g.10gb": 700_000}),
    (JULY.start_s + 10 * DAY + 45_296, "v2", {"L4": 900_000, "A100-80GB": 2_500_000, "H100-80GB/1g.10gb": 650_000}),
    (JULY.start_s + 20 * DAY + 1, "v3", {"L4": 800_000, "A100-80GB": 2_500_000, "H100-80GB/1g.10gb": 650_000}),
)


@dataclass
class Use:
    """A lease as its worker knows it, and what of it reached the platform."""

    project: str
    name: str
    device: Device
    rate: str
    anchor_ns: int
    length_ns: int
    crashed: bool
    share: int = 5040
    part: int = 0
    pull_ns: int = 0
    saved_ns: int = 0
    heard_ns: int = -1
    closed: bool = False

    def event(self, kind: str, elapsed_ns: int) -> LeaseEvent:
        """Return what the worker says at a time."""
        phases = (("pull", 0), ("run", self.pull_ns)) if self.pull_ns and elapsed_ns >= self.pull_ns else (("run", 0),)
        saved = min(self.saved_ns, elapsed_ns)
        return LeaseEvent(
            id=f"{self.name}:{kind}:{elapsed_ns}", kind=kind, lease=self.name, seq=1, task=f"{self.name}.train",
            epoch=1, run_id=self.name, function="train", device=self.device, share=self.share, part=self.part,
            rate=self.rate, tags={"team": self.project, "odd": 'a"b,\u2028c'}, anchor_ns=self.anchor_ns,
            elapsed_ns=elapsed_ns, saved_ns=saved, phases=phases,
        )  # fmt: skip

    def heard(self, event: LeaseEvent) -> None:
        """Note that an event arrived."""
        self.heard_ns = max(self.heard_ns, event.elapsed_ns)
        self.closed = self.closed or event.kind == "close"

    @property
    def truth(self) -> tuple[int, int]:
        """Return (seconds, nano-units) of a whole device that this comes to."""
        held_ns = self.length_ns if self.closed else max(0, self.heard_ns)
        start = -(-self.anchor_ns // SECOND)
        end = start + held_ns // SECOND
        begin, until = start, end
        if self.pull_ns and self.heard_ns >= self.pull_ns:
            begin = min(end, start + self.pull_ns // SECOND)
        if self.crashed:
            until = min(end, start + min(self.saved_ns, held_ns) // SECOND)
        cost = 0
        for number, (since, _, listed) in enumerate(PRICES):
            to = PRICES[number + 1][0] if number + 1 < len(PRICES) else until
            nano = listed[self.device.sku]
            nano = nano // 2 if self.rate == "spot" else nano
            nano = nano * 9 // 10 if self.project == "speech" else nano
            cost += max(0, min(until, to) - max(begin, since)) * nano
        return end - start, cost


def versions(count: int) -> PriceList:
    """Return the first price versions."""

    def version(since: int, name: str, listed: dict[str, int]) -> PriceVersion:
        spot = {sku: str(nano // 2 * HOUR / 10**9) for sku, nano in listed.items()}
        known = {"version": name, "currency": "USD", "effective_from": datetime.fromtimestamp(since, UTC)}
        rest = {"nano_per_gpu_second": listed, "spot_per_gpu_hour": spot, "discounts": {"speech": 10}}
        return PriceVersion.model_validate({**known, **rest})

    return PriceList(versions=tuple(version(*one) for one in PRICES[:count]))


def month(dice: random.Random) -> list[Use]:
    """Return leases one after the other on each device, from July into August; one device is shared in three parts."""
    uses: list[Use] = []
    for number, (project, sku) in enumerate(FLEET):
        device = Device(uuid=f"GPU-{number}", sku=sku, index=number)
        at = JULY.start_s * SECOND + dice.randrange(HOUR * SECOND)
        while at < (AUGUST.start_s + DAY) * SECOND:
            length = int(dice.choice((0.4, 3.7, 61.2, 5400, 40_000, 200_000)) * dice.uniform(0.5, 2) * SECOND)
            pull = dice.choice((0, 0, 7_500_000_000))
            crashed = dice.random() < 0.15
            rate = dice.choice(("standard", "standard", "spot"))
            name = f"{project}-{number}-{len(uses)}"
            use = Use(project, name, device, rate, at, length, crashed, pull_ns=pull, saved_ns=length // 2)
            if project == "vision":
                for third in range(3):
                    part = {"share": 1680, "part": 1680 * third, "crashed": False, "saved_ns": 0}
                    uses.append(Use(**{**vars(use), **part, "name": f"{name}-{third}"}))
            else:
                uses.append(use)
            at += length + dice.randrange(1, 20 * HOUR * SECOND)
    return uses


Delivery = tuple[float, int, Use, LeaseEvent | None]  # None: the platform gives the attempt up


def deliveries(dice: random.Random, uses: list[Use]) -> list[Delivery]:
    """Return what arrives when: late, in disorder, several times, or never."""
    found: list[Delivery] = []
    for use in uses:
        if (
            use.share != 5040
        ):  # whole devices lose their events; the parts of one do so together, or their sum says nothing
            said, lossy = [use.event("open", 0), use.event("close", use.length_ns)], 0.0
        else:
            marks = range(3 * HOUR * SECOND, use.length_ns, 3 * HOUR * SECOND)
            said = [use.event("open", 0), *(use.event("heartbeat", mark) for mark in marks)]
            said += [] if use.crashed else [use.event("close", use.length_ns)]
            lossy = 0.2
        begin = use.anchor_ns / SECOND
        for event in said:
            if dice.random() < lossy:
                continue
            late = 0.0 if use.crashed else dice.choice((1.0, 1.0, 1.0, 5 * HOUR, 3 * DAY))
            for _ in range(dice.choice((1, 1, 2, 3))):
                when = begin + event.elapsed_ns / SECOND + dice.uniform(0, 60) + late * dice.random()
                found.append((when, len(found), use, event))
        if use.crashed:
            found.append((begin + use.length_ns / SECOND + 3600, len(found), use, None))
    return sorted(found, key=lambda one: one[:2])


class Platform:
    """The ledger, and what happens to it."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock(JULY.start_s * SECOND)
        self.database = Database(url, self.clock, prices=versions(2))
        self.database.migrate()
        with self.database.write() as tx:
            book.settle(tx, "test")

    def at(self, second: float) -> None:
        """Let it be a time."""
        self.clock.advance(second - self.clock.wall_ns() / SECOND)

    def receive(self, dice: random.Random, arriving: list[Delivery]) -> None:
        """Take in what arrives, in batches; some transactions crash and come again, and the wall clock steps."""
        for start in range(0, len(arriving), 25):
            together = arriving[start : start + 25]
            self.at(max(together[-1][0], self.clock.wall_ns() / SECOND))
            step = dice.choice((0, 0, 0, -HOUR, HOUR))
            self.clock.step_wall(step)
            if dice.random() < 0.2:
                with suppress(ZeroDivisionError), self.database.write() as tx:
                    self._apply(tx, together)
                    raise ZeroDivisionError  # the process dies before it commits
            with self.database.write() as tx:
                self._apply(tx, together)
            self.clock.step_wall(-step)
            for _, _, use, event in together:
                if event is not None:
                    use.heard(event)

    def _apply(self, tx: Any, together: list[Delivery]) -> None:
        for _, _, use, event in together:
            if event is None:
                metering.close_stale(tx, f"{use.name}.train", 1)
                continue
            metering.ingest(tx, use.project, [event])
            if event.kind == "heartbeat":
                metering.ingest(
                    tx, use.project, [event.model_copy(update={"elapsed_ns": event.elapsed_ns + 1})]
                )  # forged

    def snapshot(self, period: Period, scope: str = EVERY_PROJECT) -> tuple[Snapshot, Any]:
        """Return the rows of a period as a client gets them."""
        lines = streams.lines(snapshots.stream(self.database, period, scope))
        return Snapshot.model_validate_json(next(lines)), streams.whole(lines, "here")

    def export(self, store: DirectoryStore, period: Period, version: str) -> writing.Written:
        """Export a period."""
        snapshot, rows = self.snapshot(period)
        moment = "2026-09-02T00:00:00Z"
        return writing.write(store, snapshot, rows, version=version, created_at=moment, generator="test")


def files(store: DirectoryStore) -> dict[str, str]:
    """Return the sha256 of everything in a store."""
    return {one.key: hashlib.sha256(store.get(one.key)).hexdigest() for one in store.list("")}


def bill(url: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Live through the month on a database and return what was exported."""
    platform, dice = Platform(url), random.Random(7)
    uses = month(dice)
    arriving = deliveries(dice, uses)
    noon = AUGUST.start_s + DAY / 2
    platform.receive(dice, [one for one in arriving if one[0] < noon])
    platform.at(noon)
    _close_with_a_crash(platform, JULY, monkeypatch)
    store = DirectoryStore(place / "closed")
    before = platform.export(store, JULY, "1.2")
    platform.receive(dice, [one for one in arriving if one[0] >= noon])
    with platform.database.write() as tx:
        book.apply(tx, versions(3), "test", retroactive=True)
    platform.at(SEPTEMBER.start_s + HOUR)
    august = closing.close(platform.database, AUGUST, "test")
    july = closing.close(platform.database, JULY, "test")

    for period, version in EXPORTS:
        written = platform.export(store, period, version)
        report = verifying.verify(store, written.folder, platform.snapshot(period))
        assert report.ok, (report.files, report.focus, report.ledger)
        billed = {one.id: one.billed_nano for one in written.manifest.invoices}
        assert billed == {one.id: one.payable_nano for one in (july if period == JULY else august).invoices}
    assert platform.export(store, JULY, "1.2").manifest == before.manifest  # I8: whatever came later

    payable: dict[str, int] = {}
    for found in (july, august):
        for invoice in found.invoices:
            _, rows = platform.snapshot(Period.parse(found.period), invoice.project)
            costs = [row.cost_nano or 0 for row in rows]
            assert sum(costs) == invoice.payable_nano == invoice.metered_nano + invoice.rounding_nano  # I5
            assert abs(invoice.rounding_nano) <= 5_000_000 and invoice.payable_nano % 10_000_000 == 0  # I6
            payable[invoice.project] = payable.get(invoice.project, 0) + invoice.metered_nano

    expected = dict.fromkeys(PROJECTS, 0)
    seconds = 0
    for use in uses:
        held, cost = use.truth
        seconds += held
        expected[use.project] += cost * use.share
    assert {project: nano * 5040 for project, nano in payable.items()} == expected
    assert sum(invoice.seconds for found in (july, august) for invoice in found.invoices) == seconds
    assert seconds > 3_000_000

    with platform.database.write() as tx:  # I7: what was folded is folded again from the log
        metering.rebuild(tx)
    again = DirectoryStore(place / "rebuilt")
    for period, version in EXPORTS:
        platform.export(again, period, version)
    assert files(again) == files(store)
    platform.database.close()
    return files(store)


def _close_with_a_crash(platform: Platform, period: Period, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = closing._freeze

    def freeze(tx: Any, project: str, *rest: Any) -> None:
        whole(tx, project, *rest)
        if project == "speech":
            raise ZeroDivisionError

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(closing, "_freeze", freeze)
        closing.close(platform.database, period, "test")
    closing.close(platform.database, period, "test")


def test_M1_a_month_of_faults_is_billed_to_the_second_and_the_nano(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """With PostgreSQL at hand, it exports the same bytes as SQLite."""
    on_sqlite = bill(f"sqlite:///{tmp_path / 'state.db'}", tmp_path / "sqlite", monkeypatch)
    if os.environ.get("TRAINLET_TEST_POSTGRES"):
        assert bill(request.getfixturevalue("postgres")(), tmp_path / "postgres", monkeypatch) == on_sqlite
