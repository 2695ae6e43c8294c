"""NVIDIA's own Python bindings, unmodified, on a library that this test compiles: the ABI is what is tested here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import drivers

ASK = """
import json
from trainlet_functions.devices import NvmlInventory
print(json.dumps([one.model_dump() for one in NvmlInventory().devices()]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the compiled library."""
    return drivers.compiled(tmp_path_factory.mktemp("driver"))


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
        ("GPU-t4", "T4", 3, False),
    ]


def test_the_memory_of_a_slice_is_what_the_device_says_and_not_its_name(driver: Path) -> None:
    assert [one["memory_bytes"] for one in found(driver)] == [
        85_520_809_984,
        10_200_547_328,
        42_412_802_048,
        16_106_127_360,
    ]


ASK_AGAIN = """
import json, sys
from pathlib import Path
from trainlet_functions.readings import RETRY_SWEEPS, Driver
state, driver = Path(sys.argv[1]), Driver()
seen = {}
for name, letter, sweeps in (
    ("fine", " ", 2), ("lost", "l", 1), ("found", " ", 1), ("reloaded", "r", 1), ("gone", "g", 2),
    ("back", " ", RETRY_SWEEPS)
):
    state.write_text(letter)
    for _ in range(sweeps):
        seen[name] = driver.read(["GPU-h100", "GPU-t4", "MIG-one", "GPU-unknown"])
driver.close()
print(json.dumps(seen))
"""


def test_what_devices_do_not_say_is_none_and_no_error_of_the_driver_leaves_it(driver: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), "NVML_STATE": str(state)}
    command = [sys.executable, "-c", ASK_AGAIN, str(state)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    seen = json.loads(done.stdout)
    h100, t4, part = [75, 42_760_404_992, 500_000], [20, 8_053_063_680, 60_000, None], [None, 5_100_273_664, None, None]
    assert seen["fine"] == [[*h100, 2_000_000], t4, part, None], "each by its own id, a slice says its memory only"
    assert seen["lost"] == [None, t4, part, None], "one that is lost hides no other"
    assert seen["found"] == [[*h100, 2_500_000], t4, part, None]
    assert seen["reloaded"] == [[*h100, 5], t4, part, None]
    assert seen["gone"] == [None] * 4
    assert seen["back"] == [[*h100, 3_000_000], t4, part, None], "it is asked again after a while"
    assert done.stderr.count("how busy the devices are cannot be seen") == 1, "and one line of log says so"


def test_a_library_that_is_none_means_no_devices(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert found(tmp_path) == []
