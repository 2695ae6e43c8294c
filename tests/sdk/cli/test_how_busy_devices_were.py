"""`trainlet usage` says how busy real devices were, and nothing of the kind about virtual ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import drivers

pytestmark = pytest.mark.xdist_group("cli")

FLOW = """
import time
import trainlet as tl


@tl.step(gpu="H100")
def train() -> int:
    time.sleep(2.2)
    return 1
"""


def test_the_devices_of_a_run_are_allocated_used_and_idle(
    trainlet: Any, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(drivers.compiled(tmp_path)))
    monkeypatch.setenv("TRAINLET_VIRTUAL_GPUS", "0")
    write("flow.py", FLOW)
    ran = trainlet("run", "flow.py:train", "--json")
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(trainlet("runs", "--json").stdout)[0]["id"]
    (one,) = json.loads(trainlet("usage", run_id, "--json").stdout)["devices"]
    assert (one["device"], one["sku"], one["virtual"]) == ("GPU-h100", "H100-80GB", False)
    assert one["allocated_s"] >= 2 and one["energy_mj"] > 0 and one["memory_bytes"] == 42_760_404_992
    assert one["used_ms"] == pytest.approx(0.75 * (one["used_ms"] + one["idle_ms"]), abs=2)
    shown = trainlet("usage", run_id)
    assert f"devices: {one['allocated_s']} s allocated" in shown.stdout, shown.stdout
    by_time = trainlet("usage", "--for", "today", "-g", "sku").stdout.splitlines()
    assert by_time[0] == "from\tsku\tGPU-seconds\tbusy\tcost"
    assert [line.split("\t")[-2] for line in by_time[1:]] == ["75%", "75%"]
