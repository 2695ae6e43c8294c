"""What benchmarks of checkpoints share: the memory of all processes together, and a training loop to be slowed down.

Shared pages count once, and what is staged counts although it has no name.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np
import psutil


def proportional_bytes(pid: int) -> int:
    """Return a process's proportional set size: its own pages, and its share of those that others have too."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


class Peak:
    """Watches this process and its children in a `with` block; `extra_bytes` is the peak above the beginning."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = self._peak = 0

    @property
    def extra_bytes(self) -> int:
        """Return by how much memory grew at most."""
        return self._peak - self._before

    def __enter__(self) -> Peak:
        self._before = self._peak = self._now()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self._peak = max(self._peak, self._now())

    def _now(self) -> int:
        me = psutil.Process(os.getpid())
        return sum(proportional_bytes(one.pid) for one in (me, *me.children(recursive=True)))


def training(steps: int, at: dict[int, Callable[[], None]]) -> float:
    """Train for so many steps of matrix products, and call what is given for a step after it; returns the seconds."""
    left = np.random.default_rng(0).random((700, 700))
    began = time.perf_counter()
    for step in range(1, steps + 1):
        left @ left
        at.get(step, lambda: None)()
    return time.perf_counter() - began
