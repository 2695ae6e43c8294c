"""I4: a process that saves into a directory may be killed at any system call: what it acknowledged is there and whole.

The whole matrix runs with TRAINLET_TEST_CRASHES=all (`make test-crash`), else a sample with a fixed seed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

LIVES = Path(__file__).with_name("traced_lives.py")
SHARE = 1.0 if os.environ.get("TRAINLET_TEST_CRASHES") == "all" else 0.1


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the tracer knows Linux on x86-64 only"
)
def test_I4_C1_a_directory_survives_a_kill_at_every_system_call(tmp_path: Path) -> None:
    command = [sys.executable, str(LIVES), str(tmp_path), str(SHARE), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine lets nobody trace processes")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["calls"] > 100 and found["kills"] == found["tried"]
    assert found["wrong"] == []
