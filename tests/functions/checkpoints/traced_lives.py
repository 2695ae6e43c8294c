"""Kill a process that saves into a directory at one of its system calls that change files, before or after it happens.

`traced_lives.py FOLDER SHARE SEED` goes through this share of all calls, restores after each kill as the next attempt would,
and prints JSON: how many calls there are, how many were tried, and what went wrong. It is a tracer (ptrace), for Linux on
x86-64 only.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import lives

from trainlet.client.stores import DirectoryStore

STEPS = 3
TRACEME, PEEKUSER, SYSCALL, SETOPTIONS = 0, 3, 24, 0x4200
SYSGOOD, CLONE, EXITKILL = 1, 8, 0x100000
WALL = 0x40000000
NUMBER, FIRST, THIRD = 120, 112, 96  # where a stopped thread's registers are: the call, its first and third argument
WRITE, OPENAT = 1, 257
CHANGING = {WRITE, 18, 20, 74, 75, 82, 83, 84, 86, 87, 91, OPENAT, 258, 263, 264, 265, 316}
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    ctypes.set_errno(0)
    result: int = libc.ptrace(request, pid, address, data)
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def traced(store: DirectoryStore, at: int, after: bool) -> tuple[int, int, bool]:
    """Let an attempt live until its system call number `at`; returns (calls seen, acknowledged step, whether it was killed)."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        lives.live(store, 2, STEPS, lambda step: os.write(told, b"%d\n" % step))
        os._exit(0)
    os.close(told)
    os.waitpid(pid, 0)
    ptrace(SETOPTIONS, pid, 0, SYSGOOD | CLONE | EXITKILL)
    ptrace(SYSCALL, pid)
    calls, killed = 0, False
    inside: dict[int, int] = {}  # thread -> the number of the changing call that it is in, 0 for another call
    while True:
        thread, status = os.waitpid(-1, WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread == pid:
                break
            continue
        deliver = 0
        if os.WSTOPSIG(status) == signal.SIGTRAP | 0x80 and not killed:
            if thread in inside:
                number = inside.pop(thread)
                killed = after and number == at
            else:
                inside[thread] = 0
                if changes(thread, told):
                    calls += 1
                    inside[thread] = calls
                    killed = not after and calls == at
            if killed:
                os.kill(pid, signal.SIGKILL)
                continue
        elif os.WSTOPSIG(status) not in (signal.SIGTRAP, signal.SIGSTOP, signal.SIGTRAP | 0x80):
            deliver = os.WSTOPSIG(status)
        try:
            ptrace(SYSCALL, thread, 0, deliver)
        except ProcessLookupError:
            continue
    with os.fdopen(heard) as file:
        lines = file.read().split()
    return calls, int(lines[-1]) if lines else 0, killed


def changes(thread: int, told: int) -> bool:
    """Say whether the call that a thread is about to make changes files."""
    number = ptrace(PEEKUSER, thread, NUMBER)
    if number == OPENAT:
        return bool(ptrace(PEEKUSER, thread, THIRD) & os.O_CREAT)
    return number in CHANGING and (number != WRITE or ptrace(PEEKUSER, thread, FIRST) != told)


def main() -> None:
    """Go through a share of the calls."""
    folder, share, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    lives.live(DirectoryStore(folder / "before"), 1, STEPS)
    shutil.copytree(folder / "before", folder / "counted")
    calls, acknowledged, _ = traced(DirectoryStore(folder / "counted"), 0, False)
    assert acknowledged == 2 * STEPS, acknowledged
    points = [(at, after) for at in range(1, calls + 1) for after in (False, True)]
    tried = sorted(random.Random(seed).sample(points, max(1, round(share * len(points)))))
    wrong: list[str] = []
    kills = 0
    for at, after in tried:
        place = folder / "life"
        shutil.copytree(folder / "before", place)
        store = DirectoryStore(place)
        _, acknowledged, killed = traced(store, at, after)
        kills += killed
        found = lives.newest(store, 3)
        lives.live(store, 4, STEPS)
        later = lives.newest(store, 5)
        if found < max(STEPS, acknowledged) or later != found + STEPS:
            wrong.append(
                f"call {at}, killed {'after' if after else 'before'}: {acknowledged} known, {found} there, {later}"
            )
        shutil.rmtree(place)
    print(json.dumps({"calls": calls, "tried": len(tried), "kills": kills, "wrong": wrong}))


if __name__ == "__main__":
    main()
