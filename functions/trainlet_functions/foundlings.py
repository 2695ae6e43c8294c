"""Workers of an earlier platform: what it wrote down about them, and how their end is noticed.

A platform that is killed leaves its workers running, and folders of workers that died with it. The next one takes up the
first and buries the second, so that no second of usage is lost with them. Their exit status is nobody's any more.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from trainlet.core import descriptors
from trainlet_functions import processes

NAME = "worker.json"
KEEP_S = 7 * 24 * 3600
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Foundling:
    """A worker that this platform did not start."""

    worker: str
    project: str
    function: str
    folder: Path
    pid: int

    def alive(self, variable: str) -> bool:
        """Say whether the process still is this worker: its pid may be another's by now."""
        return processes.is_marked(self.pid, variable, self.worker) and not processes.is_zombie(self.pid)

    def wait(self, variable: str) -> None:
        """Return when the process has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, AttributeError):  # gone already, or a system without pidfds
            while self.alive(variable):
                time.sleep(POLL_S)
            return
        try:
            # Looked at again after the descriptor was opened: only now it cannot become another process.
            while self.alive(variable) and not descriptors.readable([descriptor], 10 * POLL_S):
                continue
        finally:
            os.close(descriptor)


def note(folder: Path, worker: str, project: str, function: str, pid: int) -> None:
    """Write down a worker that was just started."""
    _write(folder / "pid", str(pid))
    _write(folder / NAME, json.dumps({"worker": worker, "project": project, "function": function, "pid": pid}))


def find(workers: Path) -> list[Foundling]:
    """Return the workers that were written down; folders that say nothing and are old are removed."""
    found: list[Foundling] = []
    for folder in sorted(workers.iterdir()) if workers.is_dir() else []:
        try:
            known = json.loads((folder / NAME).read_text())
            one = Foundling(
                str(known["worker"]), str(known["project"]), str(known["function"]), folder, int(known["pid"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            _sweep(folder)
            continue
        found.append(one)
    return found


def bury(folder: Path) -> None:
    """Note that the end of a worker has been recorded; its log stays for a while."""
    (folder / NAME).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a file that is never seen half written."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)


def _sweep(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime > KEEP_S:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass
