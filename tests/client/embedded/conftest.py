"""Homes of real embedded platforms, which are ended with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainlet.core.settings import Settings
from trainlet_functions import processes


def end(home: Path) -> None:
    """End the platform of a home and all that it started."""
    for process in psutil.process_iter(["cmdline"]):
        if str(home) in (process.info["cmdline"] or []):
            process.kill()
            psutil.wait_procs([process], timeout=10)
    processes.kill_marked("TRAINLET_HOME", str(home))


@pytest.fixture
def settings(isolated_environment: None) -> Iterator[Settings]:
    """Settings of a fresh home; what was started there is ended."""
    found = Settings.from_environment()
    yield found
    end(found.home)
