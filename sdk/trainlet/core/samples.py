"""Samples of devices: how busy they were, beside the bill and never deciding it.

A worker reads its devices about once a second and adds up by UTC hour, like the rows of a bill. What a device does not
tell is None, never 0: a MIG slice has no utilization of its own in NVML.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from trainlet.core.models import Natural, Reply, Request

HOUR_S = 3600
MOST_MJ = 10**12  # a gigajoule: more than any device uses in an hour
_HOUR_MS = 1000 * HOUR_S


class DeviceSample(Request):
    """What was seen of one lease's device in one UTC hour so far; the record that saw more replaces the others.

    `sampled_ms` is the time that readings stand for, `known_ms` the part of it with a utilization, `used_ms` that part
    times the utilization. Memory and power are the greatest seen; the energy is an estimate of the device itself.
    """

    lease: str = Field(min_length=1, max_length=512)
    hour: int = Field(ge=0, le=10_000_000)  # since 1970
    sampled_ms: int = Field(ge=0, le=_HOUR_MS)
    known_ms: int = Field(default=0, ge=0)
    used_ms: int = Field(default=0, ge=0)
    memory_bytes: Natural | None = None
    power_mw: Natural | None = None
    energy_mj: int | None = Field(default=None, ge=0, le=MOST_MJ)

    @model_validator(mode="after")
    def _parts_of_the_whole(self) -> DeviceSample:
        if not self.used_ms <= self.known_ms <= self.sampled_ms:
            raise ValueError("used_ms must not exceed known_ms, nor known_ms sampled_ms")
        return self


class DeviceUse(Reply):
    """How busy the device of one lease was: `allocated_s` is what is billed; used, idle and unknown add up to it.

    `used_ms` and `idle_ms` are None where nobody saw a utilization: virtual devices, MIG slices, other systems.
    """

    lease: str
    task: str
    device: str
    sku: str
    virtual: bool = False
    allocated_s: int
    used_ms: int | None = None
    idle_ms: int | None = None
    memory_bytes: int | None = None
    power_mw: int | None = None
    energy_mj: int | None = None

    @property
    def coverage(self) -> float:
        """Return the share of the allocated seconds with a known utilization, 0 to 1."""
        known_ms = (self.used_ms or 0) + (self.idle_ms or 0)
        return known_ms / (1000 * self.allocated_s) if self.allocated_s else 0.0
