"""Run one rank of one attempt inside the child: import the entry, decode the arguments, call, encode the result.

The result, or the error, is one JSON line on the report pipe, written last. An exception is reported with the user's
frames first; it never has to be pickled.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainlet.client.stores import open_store
from trainlet.core import codecs, contexts, errors, hints
from trainlet.core.protocols import ObjectStore
from trainlet_functions import checkpoints
from trainlet_functions.child import failures, manners
from trainlet_functions.child.orders import Order


def run(order_bytes: bytes, report: int, stop: int, staging: list[int] | None = None) -> int:
    """Do the order; returns the exit status (0 when a result or an error was reported).

    `staging` are the descriptors of the buffers for checkpoints, and of the line to the saver; without any, this
    process saves itself.
    """
    order = Order.model_validate_json(order_bytes)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.path.insert(0, order.bundle_dir)
    _line_buffered()
    reporter = Reporter(report)
    stopping = StopPipe(stop)
    manners.settle(Path(order.scratch_dir), order.spec.entry.qualname)
    manners.on_sigterm(lambda: stopping.tell("preempted"))
    try:
        outcome = _call(order, reporter, stopping, staging or [])
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is reported
        outcome = _failure(error, order.bundle_dir)
    _flush()
    reporter.emit(*outcome)
    manners.leave()
    _flush()
    return 0


class Reporter:
    """Writes messages to PID 1, one JSON line each; safe from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        os.set_inheritable(descriptor, False)
        self._lock = threading.Lock()

    def emit(self, kind: str, fields: dict[str, Any]) -> None:
        """Send one message."""
        line = json.dumps({"type": kind, **fields}, allow_nan=False, default=_plain).encode() + b"\n"
        with self._lock:
            view = memoryview(line)
            while view:
                view = view[self._file.write(view) :]


class StopPipe:
    """Hears from PID 1 why the attempt must end: one line, then it is known for good."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._code: str | None = None

    def tell(self, code: str) -> None:
        """Stop for a reason that did not come through the pipe."""
        self._code = self._code or code

    def __call__(self) -> str | None:
        if self._code is None:
            try:
                told = os.read(self._descriptor, 256)
            except BlockingIOError:
                return None
            self._code = told.decode().strip().splitlines()[0] if told.strip() else None
        return self._code


def _call(order: Order, reporter: Reporter, stopping: StopPipe, staging: list[int]) -> tuple[str, dict[str, Any]]:
    store = open_store(order.store_url)
    function = load_entry(order.spec.entry.module, order.spec.entry.qualname)
    workdir = Path(order.scratch_dir)
    pickle = order.spec.allow_pickle
    arguments = {
        name: codecs.decode(value, store, workdir=workdir, allow_pickle=pickle) for name, value in order.args.items()
    }
    context = _context(order, store, reporter, stopping, staging)
    token = contexts.activate(context)
    try:
        parameter = hints.context_parameter(function)
        if parameter is not None:
            arguments[parameter] = context
        reporter.emit("started", {})
        result = function(**arguments)
        context.checkpoint.wait()
    finally:
        contexts.deactivate(token)
    if order.rank != 0:
        return "result", {"value": None}
    return "result", {"value": codecs.encode(result, store, allow_pickle=pickle, name="the result")}


def _context(
    order: Order, store: ObjectStore, reporter: Reporter, stopping: StopPipe, staging: list[int]
) -> contexts.Context:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr, force=True)
    world = order.spec.ranks
    *buffers, line = staging or [-1]
    board = checkpoints.Board(buffers.pop(), world) if buffers and world > 1 else None
    return contexts.Context(
        run_id=order.run_id,
        task=order.task,
        node=order.node,
        function=order.spec.name,
        attempt=order.epoch,
        artifacts_dir=Path(order.scratch_dir),
        checkpoint=checkpoints.Checkpointer(
            store,
            f"runs/{order.task}",
            order.epoch,
            policy=order.spec.checkpoint,
            emit=reporter.emit,
            should_stop=stopping,
            link=checkpoints.Line(socket.socket(fileno=line)) if staging else None,
            buffers=[checkpoints.Buffer(one) for one in buffers],
            rank=order.rank,
            board=board,
            grace_s=order.spec.grace_s,
            on_first=lambda: reporter.emit("checkpointing", {}),
        ),
        emit=reporter.emit,
        stop=stopping,
        gpus=order.devices,
        rank=order.rank,
        world_size=world,
    )


def load_entry(module_name: str, qualname: str) -> Callable[..., Any]:
    """Import the entry of a bundle; a decorated step gives its plain function. Raises UserError when it is not there."""
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
            raise errors.UserError(f"{module_name} has no {qualname!r}; it has {', '.join(names[:10])}.") from None
    plain: Callable[..., Any] = found if inspect.isfunction(found) else getattr(found, "__wrapped__", found)
    return plain


def _failure(error: BaseException, bundle_dir: str) -> tuple[str, dict[str, Any]]:
    if isinstance(error, errors.Fenced):
        return "stopped", {"code": "fenced", "message": str(error)}
    if isinstance(error, errors.StopTask):
        code = {errors.Preempted: "preempted", errors.BudgetReached: "budget"}.get(type(error), "canceled")
        return "stopped", {"code": code, "message": str(error)}
    info = failures.describe(error, bundle_dir)
    print(info.traceback or info.message, file=sys.stderr)
    return "error", {"error": info.model_dump(mode="json")}


def _plain(value: Any) -> Any:
    """Turn a number of some array library into one that JSON knows, and anything else into words."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _line_buffered() -> None:
    """Give the child text streams of its own: those of the warm process belong to the file it was started with."""
    sys.stdout = sys.__stdout__ = _text(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2)  # type: ignore[misc]


def _text(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors="backslashreplace", line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the step closed it, or put something else there
            continue
