"""Which devices this machine has: real ones from NVML, virtual ones where there are none.

Virtual devices exist only in the books. They let the same code run, be metered and be billed on a laptop, and every
record says that they are virtual.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from trainlet.core.errors import UserError
from trainlet.core.gpus import CATALOGUE, parse_gpu
from trainlet.core.protocols import DeviceInventory
from trainlet.core.wire import Device

_LOG = logging.getLogger(__name__)
MEMORY_TOLERANCE = 0.25
GENERIC = "any"
DEFAULT_VIRTUAL = "8"
VARIABLE = "TRAINLET_VIRTUAL_GPUS"


class NvmlInventory:
    """The NVIDIA devices of this machine; empty where there is no driver."""

    def devices(self) -> list[Device]:
        """Return whole GPUs, or their MIG slices where MIG is on."""
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # noqa: BLE001 - no library, no driver, no permission: this machine has no devices for us
            return []
        try:
            found: list[Device] = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                try:
                    found += _of_gpu(pynvml, index)
                except pynvml.NVMLError as error:  # one that fell off the bus must not hide the others
                    _LOG.warning("GPU %d cannot be used: %s", index, error)
            return found
        finally:
            pynvml.nvmlShutdown()


class VirtualInventory:
    """Virtual devices: a number of generic ones that stand for any SKU, or a list such as `A100-80GB:4,H100:2`."""

    def __init__(self, text: str = DEFAULT_VIRTUAL) -> None:
        self._devices = _read(text)

    def devices(self) -> list[Device]:
        """Return the virtual devices."""
        return list(self._devices)


class LocalInventory:
    """Real devices first, then virtual ones: a SKU that the machine really has is never virtual."""

    def __init__(self, real: DeviceInventory, virtual: DeviceInventory) -> None:
        self._real, self._virtual = real, virtual

    def devices(self) -> list[Device]:
        """Return all devices."""
        return self._real.devices() + self._virtual.devices()


def local_inventory(environ: Mapping[str, str] | None = None) -> DeviceInventory:
    """Return this machine's inventory; `TRAINLET_VIRTUAL_GPUS` says how many virtual devices there are."""
    env = os.environ if environ is None else environ
    return LocalInventory(NvmlInventory(), VirtualInventory(env.get(VARIABLE, DEFAULT_VIRTUAL)))


def _read(text: str) -> tuple[Device, ...]:
    text = text.strip()
    if re.fullmatch(r"\d{1,4}", text):
        return tuple(Device(uuid=f"virtual-{number}", sku=GENERIC, virtual=True) for number in range(int(text)))
    found: list[Device] = []
    for part in text.split(","):
        try:
            wanted = parse_gpu(part.strip())
        except UserError as error:
            raise UserError(
                f"{VARIABLE}={text!r}: {error} Or give a number of devices that stand for any GPU."
            ) from error
        for _ in range(wanted.count):
            found.append(Device(uuid=f"virtual-{len(found)}", sku=wanted.sku, virtual=True))
    return tuple(found)


def _of_gpu(pynvml: object, index: int) -> list[Device]:
    from typing import Any, cast

    nvml = cast("Any", pynvml)
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    sku = sku_of(_text(nvml.nvmlDeviceGetName(handle)), int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        current = 0
    if not current:
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        return [Device(uuid=_text(nvml.nvmlDeviceGetUUID(handle)), sku=sku, index=index, memory_bytes=memory)]
    slices: list[Device] = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue
        profile = re.search(r"\d+g\.\d+gb", _text(nvml.nvmlDeviceGetName(part)).lower())
        memory = int(nvml.nvmlDeviceGetMemoryInfo(part).total)
        name = f"{sku}/{profile[0]}" if profile else sku
        slices.append(Device(uuid=_text(nvml.nvmlDeviceGetUUID(part)), sku=name, index=index, memory_bytes=memory))
    return slices


def sku_of(name: str, memory_bytes: int) -> str:
    """Return the SKU of a device by its NVML name and memory; an unknown one is named after itself.

    Every word of the model must be there as a word (an L40S is no L40), and the memory near: a bill depends on it.
    """
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"(?i)nvidia|tesla|geforce", " ", name))
    said = {word.lower() for word in words}
    near = [
        (abs(model.memory_bytes - memory_bytes), model.sku)
        for model in CATALOGUE
        if abs(model.memory_bytes - memory_bytes) <= model.memory_bytes * MEMORY_TOLERANCE
        and any(_words(spelling) <= said for spelling in (model.sku, *model.aliases))
    ]
    return min(near)[1] if near else "-".join(words) or "GPU"


def _words(spelling: str) -> set[str]:
    """Return the words of a model's name without its memory."""
    return {word for word in spelling.lower().split("-") if not re.fullmatch(r"\d+gb?", word)}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
