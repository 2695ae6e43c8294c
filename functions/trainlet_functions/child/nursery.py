"""The warm process that children are forked from: `python -m trainlet_functions.child.nursery`.

It is single-threaded, imports what the bundle imports, and then waits for orders on stdin. An order comes with the file
descriptors of the child (stdout, stderr, report pipe, stop pipe, and those for staging) over a Unix socket. It answers
with the pid, and later with the exit status.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from typing import NoReturn

from trainlet.core import descriptors
from trainlet_functions import processes

MAX_ORDER = 64 * 1024 * 1024
# What a bundle's decorators come from; by name, for this room is below it.
SDK = ("trainlet.steps", "trainlet.pipelines")


def main() -> None:
    """Serve orders from the socket whose descriptor is the first argument until it closes."""
    processes.die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # PID 1 decides what a SIGTERM means
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    _warm_up(sys.argv[2:])
    _say(channel, {"ready": True})
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    while True:
        ready = descriptors.readable([channel.fileno(), wake_read])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _report_ended(channel, children)
        if channel.fileno() in ready:
            order = _receive(channel)
            if order is None:
                return
            pid = _fork(channel, *order)
            children.add(pid)
            _say(channel, {"started": pid})


def _warm_up(modules: list[str]) -> None:
    from trainlet.core import codecs, contexts, hints, specs  # noqa: F401 - imported so that children have them
    from trainlet_functions.checkpoints import log
    from trainlet_functions.child import orders, runner  # noqa: F401

    for model in (orders.Order, specs.GpuRequest, specs.CheckpointPolicy, log.State):
        model.model_rebuild()  # pydantic builds a model at its first use, which else is in every child
    for name in (*SDK, *modules):
        # A module that cannot be imported here fails in the child, with the user's traceback.
        with contextlib.suppress(BaseException):
            importlib.import_module(name)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next order: its length and descriptors come first, then its bytes."""
    head, descriptors, _, _ = socket.recv_fds(channel, 8, 16)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    if size > MAX_ORDER:
        raise ValueError(f"an order of {size} bytes")
    body = bytearray()
    while len(body) < size:
        piece = channel.recv(min(1 << 20, size - len(body)))
        if not piece:
            return None
        body += piece
    return bytes(body), list(descriptors)


def _fork(channel: socket.socket, order: bytes, descriptors: list[int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become_child(channel, order, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _become_child(channel: socket.socket, order: bytes, descriptors: list[int]) -> NoReturn:
    status = 70
    try:
        processes.die_with_parent()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        stdout, stderr, report, stop, *staging = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        with open(os.devnull, "rb") as null:  # noqa: PTH123
            os.dup2(null.fileno(), 0)
        from trainlet_functions.child import runner, saving

        run = saving.run if saving.is_for(order) else runner.run
        status = run(order, report, stop, staging)
    except BaseException:  # noqa: BLE001 - nothing may return into the nursery's loop
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(status)


def _report_ended(channel: socket.socket, children: set[int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            _say(channel, {"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _say(channel: socket.socket, message: dict[str, object]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
