"""Real saver processes beside the ranks of a test, as a worker starts them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainlet_functions.checkpoints import Board, sidecars, stages


class SaverProcess:
    """The saver of one rank: `buffers` (descriptors) and `line` are the trainer's ends; the board may be None for one rank."""

    def __init__(self, report: Path, board: Board | None, **order: Any) -> None:
        self.buffers = [stages.anonymous_file() for _ in range(2)]
        self.line, theirs = socket.socketpair()
        control, self._told = os.pipe()
        written = os.open(report, os.O_WRONLY | os.O_CREAT, 0o600)
        shared = self.buffers if board is None else [*self.buffers, board.descriptor]
        passed = [*shared, theirs.fileno(), control, written]
        command = [sys.executable, "-m", "trainlet_functions.checkpoints.sidecars"]
        command += [sidecars.SaverOrder(**order).model_dump_json(), ",".join(map(str, shared)), *map(str, passed[-3:])]
        self._process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL)
        theirs.close()
        for descriptor in (control, written):
            os.close(descriptor)

    def tell(self, message: dict[str, Any]) -> None:
        """Tell it something, as PID 1 does."""
        os.write(self._told, json.dumps(message).encode() + b"\n")

    def end(self, *, staged: bool = False, reason: str = "lost") -> None:
        """End it as PID 1 does, and wait until it has committed."""
        self.tell({"do": "end", "reason": reason, "staged": staged, "within_s": 60})
        self._process.wait(90)

    def let_go(self) -> None:
        """Close the trainer's ends, which another process has."""
        self.line.close()
        for descriptor in self.buffers:
            os.close(descriptor)

    def close(self) -> None:
        """Leave no process."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self._told)
