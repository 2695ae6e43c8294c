"""NVIDIA's own Python bindings, unmodified, on a library that this test compiles: the ABI is what is tested here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("libnvidia_ml.c")
ASK = """
import json
from trainlet_functions.devices import NvmlInventory
print(json.dumps([one.model_dump() for one in NvmlInventory().devices()]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the compiled library."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler (apt-get install gcc)")
    folder = tmp_path_factory.mktemp("driver")
    library = str(folder / "libnvidia-ml.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(SOURCE)], check=True, timeout=60)
    return folder


def found(folder: Path) -> list[dict[str, Any]]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, timeout=60, check=True)
    devices: list[dict[str, Any]] = json.loads(done.stdout)
    return devices


def test_whole_gpus_and_slices_are_found_by_their_own_ids_and_a_lost_gpu_hides_no_other(driver: Path) -> None:
    devices = found(driver)
    assert [(one["uuid"], one["sku"], one["index"], one["virtual"]) for one in devices] == [
        ("GPU-h100", "H100-80GB", 0, False),
        ("MIG-one", "A100-80GB/1g.10gb", 1, False),
        ("MIG-three", "A100-80GB/3g.40gb", 1, False),
    ]


def test_the_memory_of_a_slice_is_what_the_device_says_and_not_its_name(driver: Path) -> None:
    assert [one["memory_bytes"] for one in found(driver)] == [85_520_809_984, 10_200_547_328, 42_412_802_048]


def test_a_library_that_is_none_means_no_devices(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert found(tmp_path) == []
