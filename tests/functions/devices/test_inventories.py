"""Which devices a machine has: those of NVML, and virtual ones that say so."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainlet.core.errors import UserError
from trainlet_functions import devices

GIB = 1024**3


def test_virtual_devices_stand_for_any_gpu_unless_named() -> None:
    assert {(one.sku, one.virtual) for one in devices.VirtualInventory("3").devices()} == {("any", True)}
    named = devices.VirtualInventory("A100:2, H100/1g.10gb:1").devices()
    assert [one.sku for one in named] == ["A100-80GB", "A100-80GB", "H100-80GB/1g.10gb"]
    assert len({one.uuid for one in named}) == 3


@pytest.mark.parametrize("text", ["A1000:2", "many", "-1", "A100:0"])
def test_a_wrong_list_of_virtual_devices_names_the_variable(text: str) -> None:
    with pytest.raises(UserError, match="TRAINLET_VIRTUAL_GPUS="):
        devices.VirtualInventory(text)


def test_a_machine_without_driver_has_virtual_devices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert devices.NvmlInventory().devices() == []
    assert all(one.virtual for one in devices.local_inventory({}).devices())
    assert len(devices.local_inventory({"TRAINLET_VIRTUAL_GPUS": "2"}).devices()) == 2


@pytest.mark.parametrize(
    ("name", "gib", "sku"),
    [
        ("NVIDIA A100-SXM4-80GB", 80, "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", 40, "A100-40GB"),
        ("NVIDIA H100 80GB HBM3", 80, "H100-80GB"),
        ("NVIDIA H200", 141, "H200-141GB"),
        ("Tesla T4", 15, "T4"),
        ("Tesla V100-SXM2-32GB", 32, "V100-32GB"),
        ("NVIDIA L40S", 45, "L40S"),
        ("NVIDIA L4", 23, "L4"),
        ("NVIDIA GeForce RTX 4090", 24, "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", 24, "RTX-3090"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "RTX-6000-Ada"),
        ("Quadro RTX 6000", 24, "Quadro-RTX-6000"),
        ("NVIDIA A10G", 22, "A10"),
        ("NVIDIA H100 NVL", 94, "H100-80GB"),
        ("NVIDIA Quadro P2000", 5, "Quadro-P2000"),
    ],
)
def test_the_name_that_nvml_gives_becomes_a_sku(name: str, gib: int, sku: str) -> None:
    assert devices.sku_of(name, gib * GIB) == sku


class NvmlError(Exception):
    pass


class Nvml:
    """The functions of pynvml that are called, over a list of GPUs; a handle is the GPU itself."""

    NVMLError = NvmlError

    def __init__(self, gpus: list[Any]) -> None:
        self.gpus = gpus

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if self.gpus[index] is None:
            raise NvmlError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu: Any) -> bytes:
        return gpu.name

    def nvmlDeviceGetUUID(self, gpu: Any) -> str:
        return gpu.uuid

    def nvmlDeviceGetMemoryInfo(self, gpu: Any) -> Any:
        return SimpleNamespace(total=gpu.gib * GIB)

    def nvmlDeviceGetMigMode(self, gpu: Any) -> tuple[int, int]:
        if gpu.slices is None:
            raise NvmlError("not supported")
        return int(bool(gpu.slices)), 0

    def nvmlDeviceGetMaxMigDeviceCount(self, _gpu: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Any, number: int) -> Any:
        if number >= len(gpu.slices):
            raise NvmlError("not found")
        return gpu.slices[number]


def gpu(name: str, uuid: str, gib: int, slices: list[Any] | None = None) -> Any:
    return SimpleNamespace(name=name.encode(), uuid=uuid, gib=gib, slices=slices)


def test_mig_slices_take_the_place_of_their_gpu_and_a_lost_gpu_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [gpu(f"NVIDIA H100 80GB HBM3 MIG {size}", f"MIG-{size}", 10) for size in ("1g.10gb", "3g.40gb")]
    found = [
        gpu("NVIDIA H100 80GB HBM3", "GPU-a", 80, parts),
        None,
        gpu("NVIDIA H100 80GB HBM3", "GPU-b", 80, []),
        gpu("Tesla T4", "GPU-c", 15),
    ]
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(found))
    listed = [(one.uuid, one.sku, one.index, one.virtual) for one in devices.NvmlInventory().devices()]
    assert listed == [
        ("MIG-1g.10gb", "H100-80GB/1g.10gb", 0, False),
        ("MIG-3g.40gb", "H100-80GB/3g.40gb", 0, False),
        ("GPU-b", "H100-80GB", 2, False),
        ("GPU-c", "T4", 3, False),
    ]
    assert "GPU is lost" in caplog.text
