"""Real runs on an embedded platform that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainlet_functions import processes

SHORT = {
    "TRAINLET_LEASE_S": "4",
    "TRAINLET_HEARTBEAT_S": "0.2",
    "TRAINLET_DISPATCHER_LEASE_S": "4",
    "TRAINLET_ANNOUNCE_S": "1",
    "TRAINLET_VIRTUAL_GPUS": "4",
}


def end(home: Path) -> None:
    """End the platform of a home and all that it started."""
    for process in psutil.process_iter(["cmdline"]):
        if str(home) in (process.info["cmdline"] or []):
            process.kill()
            psutil.wait_procs([process], timeout=10)
    processes.kill_marked("TRAINLET_HOME", str(home))


@pytest.fixture(scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    yield home
    end(home)


@pytest.fixture
def home(_home: Path, isolated_environment: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose platform the tests of a module share."""
    monkeypatch.setenv("TRAINLET_HOME", str(_home))
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    return _home
