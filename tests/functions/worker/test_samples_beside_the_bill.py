"""How busy devices are is sampled beside the bill: what is missing or broken there changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import drivers

from trainlet.core import wire
from trainlet.core.clocks import ManualClock
from trainlet_functions.readings import Reading
from trainlet_functions.worker import samples, spool

S = 10**9
HOUR = 3600 * S
BUSY = Reading(utilization=75, memory_bytes=40, power_mw=500_000, energy_mj=1_000_000)
STEP = """
    import time
    def f():
        print("began")
        time.sleep(1.2)
        return "done"
"""
DEVICES = [
    wire.Device(uuid="GPU-h100", sku="H100-80GB"),
    wire.Device(uuid="GPU-t4", sku="T4"),
    wire.Device(uuid="MIG-one", sku="A100-80GB/1g.10gb"),
]


def more(reading: Reading, energy_mj: int, **changes: Any) -> Reading:
    return reading._replace(energy_mj=energy_mj, **changes)


def test_seconds_are_added_up_by_hour_and_a_gap_is_not_filled() -> None:
    tally = samples.Tally("lease", 10 * HOUR - 3 * S)
    for at, reading in (
        (-2 * S, BUSY),
        (-1 * S, more(BUSY, 1_500_000, utilization=25)),
        (S // 2, more(BUSY, 2_000_000, memory_bytes=60)),
        (600 * S, more(BUSY, 3_000_000)),  # it was suspended: two seconds of it are seen
    ):
        tally.add(10 * HOUR + at, reading)
    first, second = tally.samples()
    assert (first.hour, first.sampled_ms, first.known_ms, first.used_ms) == (9, 2000, 2000, 1000)
    assert (second.hour, second.sampled_ms, second.used_ms) == (10, 2500, 1875), "no second of the hour before is in it"
    assert (first.memory_bytes, second.memory_bytes, first.power_mw) == (40, 60, 500_000)
    assert (first.energy_mj, second.energy_mj) == (500_000, 1_500_000), "the counter goes on in a gap"


def test_what_a_device_does_not_say_is_unknown_and_not_zero() -> None:
    tally = samples.Tally("lease", 10 * HOUR)
    tally.add(10 * HOUR + S, Reading(None, 5, None, None))
    tally.add(10 * HOUR + 2 * S, None)
    (one,) = tally.samples()
    assert (one.sampled_ms, one.known_ms, one.used_ms) == (1000, 0, 0)
    assert (one.memory_bytes, one.power_mw, one.energy_mj) == (5, None, None)


def test_energy_is_what_a_counter_gained_and_without_one_power_times_time() -> None:
    counted, powered = samples.Tally("a", 10 * HOUR), samples.Tally("b", 10 * HOUR)
    for second, energy_mj in enumerate((1000, 1600, 50, 70), 1):  # the driver was loaded again in between
        counted.add(10 * HOUR + second * S, more(BUSY, energy_mj))
        powered.add(10 * HOUR + second * S, BUSY._replace(energy_mj=None))
    assert counted.samples()[0].energy_mj == 620
    assert powered.samples()[0].energy_mj == 4 * 500_000


def test_a_counter_that_jumps_makes_no_sample_that_would_be_refused() -> None:
    tally = samples.Tally("lease", 10 * HOUR)
    tally.add(10 * HOUR + S, more(BUSY, 0))
    tally.add(10 * HOUR + 2 * S, more(BUSY, 1 << 61))
    assert tally.samples()[0].energy_mj == 10**12


def test_an_hour_is_told_until_it_was_heard_in_full(claim: wire.ClaimReply, tmp_path: Path) -> None:
    clock = ManualClock()
    sampler = samples.Sampler(claim, tmp_path, clock)
    assert sampler.due() == []
    (tally,) = sampler._tallies
    tally.last_ns = 10 * HOUR
    tally.add(10 * HOUR + S, BUSY)
    assert sampler.due() == [], "nothing more often than once a minute"
    clock.advance(60)
    told = sampler.due()
    assert [one.sampled_ms for one in told] == [1000]
    tally.add(10 * HOUR + 2 * S, BUSY)
    tally.add(11 * HOUR + S, BUSY)
    sampler.heard(told)
    assert [one.hour for one in sampler.all()] == [10, 11], "it had grown meanwhile"
    sampler.heard(sampler.all())
    assert [one.hour for one in sampler.all()] == [11]


@pytest.fixture
def claim() -> wire.ClaimReply:
    task = wire.TaskView(
        key="run.f", project="p", run_id="run", node="f", function="f", digest="0" * 64, state="running",
        created_at="2026-01-01T00:00:00.000Z", updated_at="2026-01-01T00:00:00.000Z",
    )  # fmt: skip
    return wire.ClaimReply.model_construct(task=task, epoch=1, devices=DEVICES[:1], wall_anchor_ns=10 * HOUR)


@pytest.mark.timeout(60)
def test_a_worker_samples_the_devices_of_its_attempt_by_nvidias_own_bindings(bench: Any, tmp_path: Path) -> None:
    key = bench.offer(STEP, devices=DEVICES)
    bench.start(LD_LIBRARY_PATH=str(drivers.compiled(tmp_path)))
    finish = bench.finish()
    assert finish.output == "done"
    lease = finish.usage[0].lease.removesuffix(".0")
    assert lease.startswith(f"{key}.1.")
    seen = {name: [one for one in finish.samples if one.lease == f"{lease}.{name}"] for name in range(3)}
    h100, t4, part = (sum(one.sampled_ms for one in seen[name]) for name in range(3))
    held_ms = finish.usage[0].elapsed_ns // 10**6
    assert all(1000 <= one <= held_ms for one in (h100, t4, part))
    assert sum(one.used_ms for one in seen[0]) == pytest.approx(0.75 * h100, abs=2)
    assert sum(one.used_ms for one in seen[1]) == pytest.approx(0.20 * t4, abs=2)
    assert sum(one.known_ms for one in seen[2]) == 0, "NVML has no utilization of a slice"
    assert seen[2][0].memory_bytes == 5_100_273_664
    assert sum(one.energy_mj or 0 for one in seen[0]) >= 500_000
    assert sum(one.energy_mj or 0 for one in seen[1]) == pytest.approx(60 * t4, abs=60)
    bench.eventually(lambda: not list(tmp_path.glob(f"worker*/{spool.SAMPLES}")), what="the end of the spool")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("state", ["g", None])
def test_an_attempt_whose_driver_is_gone_or_missing_ends_as_any_other(bench: Any, tmp_path: Path, state: str) -> None:
    bench.offer(STEP.replace("1.2", "0"), devices=DEVICES)
    (tmp_path / "state").write_text(state or "")
    where = drivers.compiled(tmp_path) if state else tmp_path
    bench.start(LD_LIBRARY_PATH=str(where), NVML_STATE=str(tmp_path / "state"))
    finish = bench.finish()
    assert (finish.output, finish.samples) == ("done", [])
    assert len(finish.usage) == 3, "what is billed does not ask the driver"


@pytest.mark.timeout(60)
def test_what_a_killed_worker_had_sampled_lies_beside_its_usage(bench: Any, tmp_path: Path) -> None:
    bench.offer(STEP.replace("1.2", "60"), devices=DEVICES)
    worker = bench.start(LD_LIBRARY_PATH=str(drivers.compiled(tmp_path)))
    folder = bench.root / "worker0"
    bench.eventually(lambda: spool.read_leftover_samples(folder), what="the spool")
    worker.kill()
    worker.wait()
    assert {one.lease for one in spool.read_leftover_samples(folder)} == {
        one.lease for one in spool.read_leftover(folder)
    }
    (folder / spool.SAMPLES).write_text('[{"lease": "x"')
    assert spool.read_leftover_samples(folder) == []
