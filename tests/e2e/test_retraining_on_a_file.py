"""`examples/retrain.py` runs by one command: a file starts a run, the same file again starts nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "retrain.py"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_file_starts_a_run_and_the_same_file_again_starts_nothing(alone: Any) -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert re.findall(r"object\.created (\S+)", done.stdout) == ["monday.npz", "tuesday.npz"]
    first, second = map(float, re.findall(r"accuracy ([\d.]+)", done.stdout))
    assert first > 0.7 and second > 0.7
    assert all(float(cost) > 0 for cost in re.findall(r"cost ([\d.]+) USD", done.stdout))
