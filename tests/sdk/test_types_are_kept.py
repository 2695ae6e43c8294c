from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "typing_cases"
ROOT = CASES.parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_mypy_sees_the_real_signatures_and_refuses_wrong_calls() -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in CASES.glob("*.py"))
    assert files
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--no-error-summary", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if "typing_cases" in line] == []
