"""A real embedded platform: API, pool, workers and children as processes, with short leases."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually

from trainlet_functions import processes

CODE = Path(__file__).parent / "code"
SHORT = {
    "TRAINLET_LEASE_S": "4",
    "TRAINLET_HEARTBEAT_S": "0.2",
    "TRAINLET_DISPATCHER_LEASE_S": "4",
    "TRAINLET_ORPHAN_S": "20",
    "TRAINLET_WARM_S": "30",
    "TRAINLET_ANNOUNCE_S": "1",
    "TRAINLET_VIRTUAL_GPUS": "4",
}


class Home:
    """One home with its platform."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def platform_pid(self) -> int | None:
        """Return the pid of the running platform."""
        try:
            return int(json.loads((self.path / "platform.json").read_text())["pid"])
        except (OSError, ValueError):
            return None

    def address(self) -> tuple[str, str]:
        """Return (url, token) of the running platform."""
        known = json.loads((self.path / "platform.json").read_text())
        return known["url"], known["token"]

    @staticmethod
    def eventually(look: Callable[[], Any], timeout_s: float = 30.0) -> Any:
        """Look again until there is something; fail after a while."""
        return eventually(look, timeout_s)

    def worker_pid(self, worker: str) -> int:
        """Return the pid of a worker."""
        return int((self.path / "workers" / worker / "pid").read_text())

    def kill_platform(self) -> None:
        """SIGKILL the platform."""
        pid = self.platform_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")

    def end(self) -> None:
        """End everything of this home."""
        pid = self.platform_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        processes.kill_marked("TRAINLET_HOME", str(self.path))
        for process in psutil.process_iter(["cmdline"]):
            if str(self.path) in (process.info["cmdline"] or []):
                process.kill()


def _use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLET_HOME", str(home))
    for name, value in SHORT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(CODE))


@pytest.fixture(scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("home"))
    yield home
    home.end()


@pytest.fixture
def shared(_shared: Home, isolated_environment: None, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A platform that the tests of a module share."""
    _use(_shared.path, monkeypatch)
    return _shared


@pytest.fixture
def alone(tmp_path: Path, isolated_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A platform of this test's own, to break."""
    home = Home(tmp_path / "own")
    _use(home.path, monkeypatch)
    yield home
    home.end()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of steps, imported as a user would."""
    import importlib

    monkeypatch.syspath_prepend(str(CODE))
    sys.modules.pop("faulty", None)
    return importlib.import_module("faulty")
