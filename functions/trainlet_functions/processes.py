"""Processes and their descendants: finding them, ending them, and making the kernel end them with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent thread ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def marked(variable: str, value: str) -> list[int]:
    """Return processes whose environment has the variable with this value, this process excluded."""
    found: list[int] = []
    needle = f"{variable}={value}".encode()
    if sys.platform == "linux":
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if needle in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                found.append(process.pid)
    return found


def kill_descendants(keep: set[int], variable: str, value: str, *, timeout_s: float = 5.0) -> bool:
    """Kill every descendant of this process and every process marked with the variable, but for those to keep.

    A process may hide from one of the two (by a clean environment, by another parent), not from both while this
    process adopts orphans. Repeats until none is left; returns whether none is.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = {child.pid for child in _descendants()} | set(marked(variable, value))
        left = [pid for pid in found - keep if not is_zombie(pid)]
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)


def kill_marked(variable: str, value: str, *, timeout_s: float = 5.0) -> bool:
    """Kill every process marked with the variable, again until none is left; returns whether none is."""
    deadline = time.monotonic() + timeout_s
    while left := [pid for pid in marked(variable, value) if not is_zombie(pid)]:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _descendants() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def memory_of_tree(pid: int) -> int:
    """Return the resident bytes of a process and its descendants (shared pages counted per process)."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                memory = process.memory_info()
                total += memory.rss - getattr(memory, "shared", 0)
    return total


def is_zombie(pid: int) -> bool:
    """Say whether a process has ended and only waits to be collected, or is gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
