"""How busy the devices of one attempt are: read once a second, added up by UTC hour, sent about once a minute.

It has a thread of its own that nothing waits for: a driver that hangs, fails or is missing costs samples and nothing
else. What the API has not heard is on disk, as usage is.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from trainlet.core.clocks import Clock
from trainlet.core.samples import HOUR_S, MOST_MJ, DeviceSample
from trainlet.core.wire import ClaimReply
from trainlet_functions import journals
from trainlet_functions.readings import Driver, Reading
from trainlet_functions.worker import spool

_LOG = logging.getLogger(__name__)
EVERY_S = 1.0
SPOOL_EVERY = 10  # sweeps
SEND_EVERY_NS = 60 * 10**9
STOP_S = 1.0
_EVERY_NS = round(EVERY_S * 1e9)
_HOUR_NS = HOUR_S * 10**9


@dataclass(slots=True)
class _Sums:
    sampled_ns: int = 0
    known_ns: int = 0
    used: int = 0  # percent times ns
    memory_bytes: int | None = None
    power_mw: int | None = None
    energy_uj: int | None = None


@dataclass(slots=True)
class Tally:
    """Adds up the readings of one device; `moment_ns` is the time of the lease, which never steps back."""

    lease: str
    last_ns: int
    counter_mj: int | None = None
    hours: dict[int, _Sums] = field(default_factory=dict)

    def add(self, moment_ns: int, reading: Reading | None) -> None:
        """Count a reading for the time since the last look, but not for a gap: nobody knows what was in it."""
        span_ns = max(0, min(moment_ns - self.last_ns, 2 * _EVERY_NS, moment_ns % _HOUR_NS))
        self.last_ns = max(self.last_ns, moment_ns)
        if reading is None:
            return
        sums = self.hours.setdefault(moment_ns // _HOUR_NS, _Sums())
        sums.sampled_ns += span_ns
        if reading.utilization is not None:
            sums.known_ns += span_ns
            sums.used += reading.utilization * span_ns
        sums.memory_bytes = _greater(sums.memory_bytes, reading.memory_bytes)
        sums.power_mw = _greater(sums.power_mw, reading.power_mw)
        energy_uj = self._energy_uj(reading, span_ns)
        if energy_uj is not None:
            sums.energy_uj = (sums.energy_uj or 0) + energy_uj

    def samples(self) -> list[DeviceSample]:
        """Return what was seen, by hour."""
        return [
            DeviceSample(
                lease=self.lease,
                hour=hour,
                sampled_ms=sums.sampled_ns // 10**6,
                known_ms=sums.known_ns // 10**6,
                used_ms=sums.used // 10**8,
                memory_bytes=sums.memory_bytes,
                power_mw=sums.power_mw,
                energy_mj=None if sums.energy_uj is None else min(sums.energy_uj // 1000, MOST_MJ),
            )
            for hour, sums in sorted(self.hours.items())
        ]

    def _energy_uj(self, reading: Reading, span_ns: int) -> int | None:
        """Return what was used since the last look: by the device's counter (anew with its driver), else by its power."""
        before, self.counter_mj = self.counter_mj, reading.energy_mj
        if reading.energy_mj is not None:
            return 1000 * (reading.energy_mj - before) if before is not None and before <= reading.energy_mj else 0
        return None if reading.power_mw is None else reading.power_mw * span_ns // 10**6


class Sampler:
    """Samples the real devices of a claim from `start` to `stop`; does nothing where there are none."""

    def __init__(self, claim: ClaimReply, folder: Path, clock: Clock) -> None:
        self._log = journals.of_attempt(_LOG, claim)
        self._folder = folder
        self._clock = clock
        self._start_ns, self._anchor_ns = clock.boot_ns(), claim.wall_anchor_ns
        lease = f"{claim.task.key}.{claim.epoch}.{claim.wall_anchor_ns:x}"  # as the meter names them
        real = [(index, device.uuid) for index, device in enumerate(claim.devices) if not device.virtual]
        self._uuids = [uuid for _, uuid in real]
        self._tallies = [Tally(f"{lease}.{index}", self._anchor_ns) for index, _ in real]
        self._driver = Driver()
        self._sent_ns = self._start_ns
        self._sweeps = 0
        self._broken = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        if self._uuids:
            self._thread.start()

    def stop(self) -> None:
        """End it. A driver that hangs is left to itself."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def due(self) -> list[DeviceSample]:
        """Return what the API should hear with this heartbeat: nothing more often than once a minute."""
        return self.all() if self._clock.boot_ns() - self._sent_ns >= SEND_EVERY_NS else []

    def all(self) -> list[DeviceSample]:
        """Return everything that the API has not heard, or not in full."""
        with self._lock:
            return [sample for tally in self._tallies for sample in tally.samples()]

    def heard(self, told: list[DeviceSample]) -> None:
        """Forget what the API has taken, but for the hour that goes on."""
        if not told:
            return
        self._sent_ns = self._clock.boot_ns()
        with self._lock:
            for tally in self._tallies:
                for sample in tally.samples()[:-1]:
                    if sample in told:
                        del tally.hours[sample.hour]

    def forget(self) -> None:
        """Drop the spool: the API has heard the end."""
        spool.clear_samples(self._folder)

    def look(self) -> None:
        """Read every device once, and now and then write down what was seen."""
        readings = self._driver.read(self._uuids)
        moment_ns = self._anchor_ns + self._clock.boot_ns() - self._start_ns
        with self._lock:
            for tally, reading in zip(self._tallies, readings, strict=True):
                tally.add(moment_ns, reading)
        self._sweeps += 1
        if self._sweeps % SPOOL_EVERY == 1:
            spool.save_samples(self._folder, self.all())

    def _run(self) -> None:
        self._try_sweep()
        while not self._over.wait(EVERY_S):
            self._try_sweep()
        self._try_sweep()
        self._driver.close()

    def _try_sweep(self) -> None:
        try:
            self.look()
        except Exception:  # noqa: BLE001 - samples are beside the bill: nothing of them may end the training
            if not self._broken:
                self._log.warning("the devices cannot be sampled", exc_info=True)
            self._broken = True


def _greater(one: int | None, other: int | None) -> int | None:
    return one if other is None else max(one or 0, other)
