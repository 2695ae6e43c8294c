"""What NVML says about devices at this moment. No error of the driver leaves here: what it cannot tell is None.

Only for a thread of its own: a driver in trouble may answer late, or never.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)
RETRY_SWEEPS = 60  # how many times nothing is asked of a driver that answered nothing
_MOST_MW = 100_000_000
_MOST_BYTES = 1 << 50


class Reading(NamedTuple):
    """One look at one device. `utilization` in percent; `energy_mj` counts since the driver was loaded."""

    utilization: int | None
    memory_bytes: int | None
    power_mw: int | None
    energy_mj: int | None


class Driver:
    """NVML, opened at the first question, and again a while after it has failed."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._rest = 0
        self._complained = False

    def read(self, uuids: Sequence[str]) -> list[Reading | None]:
        """Return a reading of each device, None for one that says nothing at all."""
        if self._rest:
            self._rest -= 1
            return [None for _ in uuids]
        try:
            nvml = self._open()
            found = [self._of(nvml, uuid) for uuid in uuids]
        except Exception as error:  # noqa: BLE001 - no library, no driver, no permission
            self._give_up(f"{type(error).__name__}: {error}")
            return [None for _ in uuids]
        if not any(found):
            self._give_up("no device answers")
        return found

    def close(self) -> None:
        """Let go of the driver."""
        nvml, self._nvml = self._nvml, None
        self._handles.clear()
        if nvml is not None:
            with contextlib.suppress(Exception):
                nvml.nvmlShutdown()

    def _open(self) -> Any:
        if self._nvml is None:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        return self._nvml

    def _of(self, nvml: Any, uuid: str) -> Reading | None:
        if uuid not in self._handles:
            handle = _ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
            if handle is None:
                return None
            self._handles[uuid] = handle
        handle = self._handles[uuid]
        rates = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        reading = Reading(
            utilization=_within(None if rates is None else rates.gpu, 100),
            memory_bytes=_within(None if memory is None else memory.used, _MOST_BYTES),
            power_mw=_within(_ask(nvml.nvmlDeviceGetPowerUsage, handle), _MOST_MW),
            energy_mj=_within(_ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 1 << 62),
        )
        if all(value is None for value in reading):
            del self._handles[uuid]  # lost or reset: it may come back as another handle
            return None
        return reading

    def _give_up(self, why: str) -> None:
        if not self._complained:
            _LOG.warning("how busy the devices are cannot be seen (%s); the bill does not depend on it", why)
        self._complained = True
        self._rest = RETRY_SWEEPS
        self.close()


def _ask(question: Callable[[Any], Any], about: Any) -> Any:
    try:
        return question(about)
    except Exception:  # noqa: BLE001 - not supported, no permission, unknown to this driver, the device is lost
        return None


def _within(value: Any, most: int) -> int | None:
    """Return a number of the driver; one that cannot be is its way to say that there is none."""
    return int(value) if value is not None and 0 <= int(value) <= most else None
