"""Checkpoints without a worker: a script or notebook that saves by itself, with a sidecar of its own.

The sidecar outlives the script: when that is killed, the newest staged state is committed. SIGTERM makes the next
`step` save and raise Preempted.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

from trainlet.client.stores import open_store
from trainlet.core.errors import UserError
from trainlet.core.protocols import ObjectStore
from trainlet.core.specs import CheckpointPolicy
from trainlet_functions.checkpoints import sidecars, stages
from trainlet_functions.checkpoints.checkpointer import Checkpointer
from trainlet_functions.checkpoints.links import Line


def start(name: str, store_url: str, policy: CheckpointPolicy) -> Standalone:
    """Return a checkpointer for `runs/<name>` in a store, as the next epoch, with a new sidecar process."""
    rank = os.environ.get("RANK", "0")
    if rank.isdecimal() and int(rank) > 0:
        raise UserError(
            f"This is rank {rank}, and tl.checkpoint({name!r}) is for one process: each rank would shut out the one before. "
            "Save on rank 0 alone, give each rank a name of its own, or run this as a step with ranks=."
        )
    store = open_store(store_url)  # a store that cannot be opened is told here, not by another process
    buffers = [stages.anonymous_file() for _ in range(2)]
    ours, theirs = socket.socketpair()
    control, kept = os.pipe()  # `kept` closes with this process: the sidecar then ends by itself
    null = os.open(os.devnull, os.O_WRONLY)
    order = sidecars.SaverOrder(
        store_url=store_url, prefix=f"runs/{name}", epoch=None, policy=policy, outlive=True
    ).model_dump_json()
    passed = [*buffers, theirs.fileno(), control, null]
    arguments = [order, ",".join(map(str, buffers)), *map(str, passed[2:])]
    command = [sys.executable, "-m", "trainlet_functions.checkpoints.sidecars", *arguments]
    process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL)
    for descriptor in (control, null):
        os.close(descriptor)
    theirs.close()
    stop = _on_sigterm()
    return Standalone(
        store,
        f"runs/{name}",
        process,
        kept,
        policy=policy,
        emit=_say,
        should_stop=lambda: "preempted" if stop.is_set() else None,
        link=Line(ours),
        buffers=[stages.Buffer(one) for one in buffers],
    )


class Standalone(Checkpointer):
    """A checkpointer that owns its sidecar. Use it in a `with` block, or call `close`."""

    def __init__(
        self, store: ObjectStore, prefix: str, process: subprocess.Popen[bytes], kept: int, **options: Any
    ) -> None:
        super().__init__(store, prefix, None, **options)
        self._process = process
        self._kept = kept

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit what was ordered and end the sidecar; a second call does nothing."""
        if self._kept < 0:
            return
        try:
            super().close()
        finally:
            os.close(self._kept)
            self._kept = -1
            self._process.wait()


def _say(kind: str, fields: dict[str, Any]) -> None:
    """Show a person what else the worker would log."""
    if kind == "warning":
        print(f"trainlet: {fields['message']}", file=sys.stderr, flush=True)


def _on_sigterm() -> threading.Event:
    """Note a SIGTERM where nobody else has a use for it; elsewhere the event stays unset."""
    told = threading.Event()

    def hear(_number: int, _frame: FrameType | None) -> None:
        told.set()

    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, hear)
    return told
