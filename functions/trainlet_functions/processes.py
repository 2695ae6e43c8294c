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
_EXEC_S = 1.0  # far above what the kernel needs between closing the old program and laying out the new one
_LISTED = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent thread ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that none escapes (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_marked(pid: int, variable: str, value: str) -> bool:
    """Say whether a process runs whose environment has the variable with this value."""
    if sys.platform == "linux":
        return f"{variable}={value}".encode() in _environment(Path(f"/proc/{pid}"))
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).environ().get(variable) == value
    return False


def marked(variable: str, value: str) -> list[int]:
    """Return processes whose environment has the variable with this value, this process excluded."""
    return [pid for pid in psutil.pids() if pid != os.getpid() and is_marked(pid, variable, value)]


def _environment(process: Path) -> list[bytes]:
    """Return the environment of a process as NAME=VALUE; empty when it is gone or another user's.

    A process that is being started has none for a moment: the kernel lays out the new program's arguments and environment
    after it has closed the descriptors of the old one, which is when the parent goes on.
    """
    deadline = time.monotonic() + _EXEC_S
    laid_out = False
    with contextlib.suppress(OSError):
        while True:
            found = (process / "environ").read_bytes()
            if found or laid_out or time.monotonic() > deadline:
                return found.split(b"\0")
            (process / "exe").readlink()  # raises for what never has a program: a zombie, a thread of the kernel
            time.sleep(0.001)
            laid_out = bool((process / "cmdline").read_bytes())
            if laid_out:
                time.sleep(0.001)  # the environment comes a moment after the arguments
    return []


def kill_descendants(keep: set[int], variable: str, value: str, *, timeout_s: float = 5.0) -> bool:
    """Kill every descendant of this process and every process marked with the variable, but for those to keep.

    A process may hide from one of the two (by a clean environment, by another parent), not from both while this
    process adopts orphans. Repeats until none is left; returns whether none is.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = descendants(os.getpid()) | set(marked(variable, value))
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


def reap(keep: set[int]) -> None:
    """Collect adopted orphans that have ended, but for the children that others wait for."""
    for pid in descendants(os.getpid()) - keep:
        if is_zombie(pid):
            with contextlib.suppress(OSError):  # of another parent, which collects it itself
                os.waitpid(pid, os.WNOHANG)


def descendants(pid: int) -> set[int]:
    """Return every process below this one. Kernels that list children are asked, else all processes are searched."""
    if not _LISTED:
        with contextlib.suppress(psutil.Error):
            return {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return set()
    found: set[int] = set()
    new = [pid]
    while new:
        below = _children(new.pop()) - found
        found |= below
        new += below
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found |= {int(child) for child in (task / "children").read_bytes().split()}
    return found


def memory_of_tree(pid: int) -> int:
    """Return the resident bytes of a process and its descendants, without pages that they share with files."""
    return sum(_memory(one) for one in {pid} | descendants(pid))


def _memory(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        memory = psutil.Process(pid).memory_info()
        return max(0, int(memory.rss) - int(getattr(memory, "shared", 0)))
    return 0


def is_zombie(pid: int) -> bool:
    """Say whether a process has ended and only waits to be collected, or is gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
