"""What makes a forked child a process of its own: its folder, its name, its signals, its random numbers, its end.

A fork inherits what the warm process had. Left alone, children of one worker would draw the same random numbers, ignore
SIGTERM (and so would every program that they start), and see the warm process's command line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType


def settle(folder: Path, name: str) -> None:
    """Work in a folder of its own: files that a step writes by relative names end with the attempt."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    sys.argv = [name]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(None)  # Python's own generator does this by itself after a fork; NumPy's does not


def on_sigterm(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM instead of dying: whoever signals all processes of a machine lets this one save first.

    Processes that the step forks or starts get the usual SIGTERM, so that they can be ended as everywhere else.
    """

    masks: dict[int, set[int]] = {}

    def hear(_number: int, _frame: FrameType | None) -> None:
        stop()

    def before() -> None:
        # A signal that came before the child has let go of this handler would be forgotten there.
        masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(threading.get_ident()))

    def after_in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(threading.get_ident()))

    signal.signal(signal.SIGTERM, hear)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


def leave() -> None:
    """Run what libraries registered for the end of the process: open writers flush, trackers send their last lines."""
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
