"""The processes that drive the runs which triggers started: one for each project that has any, made anew when it dies.

A driver is `python -m trainlet_pipelines.driver`, a graph runner that talks HTTP to this API: this room never imports
it. Driving a run a second time attaches to its tasks, so a driver may die, or two may live for a moment, at any time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from trainlet_functions.state.database import Database
from trainlet_functions.triggers import tables

_LOG = logging.getLogger(__name__)
_FIRINGS = tables.firings
AGAIN_S = 2.0
MOST_PAUSE_S = 60.0


@dataclass(slots=True)
class _Driver:
    """One process, or the pause before the next."""

    process: subprocess.Popen[bytes]
    began: float
    failures: int = 0
    not_before: float = 0.0


class Drivers:
    """Keeps a driver for each project that has runs to drive."""

    def __init__(self, database: Database, home: Path, api_url: str, mint_token: Callable[[str], str]) -> None:
        self._database = database
        self._home = home
        self._api_url = api_url
        self._mint_token = mint_token
        self._running: dict[str, _Driver] = {}
        self._tokens: dict[str, str] = {}

    def keep(self) -> None:
        """Start what is missing; a driver that nobody needs leaves by itself."""
        with self._database.read() as tx:
            wanted = sa.select(_FIRINGS.c.project).where(_FIRINGS.c.ended_ns.is_(None)).distinct()
            projects = {row.project for row in tx.all(wanted)}
        now = time.monotonic()
        for project, known in list(self._running.items()):
            if known.process.poll() is None or known.not_before > now:
                continue
            if project not in projects:
                del self._running[project]
        for project in projects:
            self._ensure(project, now)

    def close(self) -> None:
        """End them; their runs are driven on by whoever starts next."""
        for known in self._running.values():
            known.process.terminate()
        for known in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                known.process.wait(timeout=5.0)
                continue
            known.process.kill()
            known.process.wait()

    def _ensure(self, project: str, now: float) -> None:
        known = self._running.get(project)
        failures = 0
        if known is not None:
            code = known.process.poll()
            if code is None:
                return
            if code == 0:
                known.failures = 0
            elif known.not_before == 0.0:
                known.failures += 1
                known.not_before = now + min(MOST_PAUSE_S, AGAIN_S * 2 ** (known.failures - 1))
                _LOG.warning("the driver of %s ended with %d; %s tells more", project, code, self._log(project))
            if known.not_before > now:
                return
            failures = known.failures if now - known.began < MOST_PAUSE_S else 0
        if project not in self._tokens:
            self._tokens[project] = self._mint_token(project)
        self._log(project).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        hidden = ("TRAINLET_DATABASE_URL", "TRAINLET_BOOTSTRAP_TOKEN")
        environment = {
            **{name: value for name, value in os.environ.items() if name not in hidden},
            "TRAINLET_API": self._api_url,
            "TRAINLET_TOKEN": self._tokens[project],
            "TRAINLET_HOME": str(self._home),
        }
        with self._log(project).open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainlet_pipelines.driver"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=str(self._home),
                start_new_session=True,
            )
        self._running[project] = _Driver(process, now, failures)

    def _log(self, project: str) -> Path:
        return self._home / "drivers" / f"{project}.log"
