"""Graphs by hand, and an executor that answers as a test says, at once or when the test lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from trainlet.core import graphs
from trainlet_pipelines.runner import Call, Outcome

DIGEST = "0" * 64


def node(node_id: str, scope: str = "root", after: tuple[str, ...] = (), **inputs: Any) -> graphs.Node:
    """A node whose function has its name; inputs that are no expressions are constants."""
    given = {
        name: value if isinstance(value, graphs.Value) else graphs.Constant(value=value)
        for name, value in inputs.items()
    }
    return graphs.Node(id=node_id, function="f", digest=DIGEST, scope=scope, after=after, inputs=given)


def out(node_id: str, *path: str | int) -> graphs.Output:
    """The result of a node."""
    return graphs.Output(node=node_id, path=path)


class Scripted:
    """Answers calls by node id: a value, an exception, or a function of the call. Keeps the order of starts.

    Names in `held` wait until they are released; everything else ends when the walking thread settles.
    """

    def __init__(self, answers: dict[str, Any] | None = None, held: set[str] | None = None) -> None:
        self.answers = answers or {}
        self.held = held or set()
        self.started: list[str] = []
        self.calls: dict[str, Call] = {}
        self.canceled: list[str] = []
        self.most_at_once = 0
        self._dones: dict[str, Callable[[Outcome], None]] = {}
        self._ready: list[str] = []
        self.changed = threading.Condition()

    def start(self, call: Call, done: Callable[[Outcome], None]) -> None:
        with self.changed:
            self.started.append(call.name)
            self.calls[call.name] = call
            self._dones[call.name] = done
            self.most_at_once = max(self.most_at_once, len(self._dones))
            if call.name not in self.held:
                self._ready.append(call.name)
            self.changed.notify_all()

    def settle(self) -> None:
        ready, self._ready = self._ready, []
        for name in ready:
            self.release(name)

    def release(self, name: str) -> None:
        answer = self.answers.get(self.calls[name].node.id, name)
        if callable(answer):
            answer = answer(self.calls[name])
        if isinstance(answer, BaseException):
            outcome = Outcome("failed", error=answer)
        else:
            outcome = answer if isinstance(answer, Outcome) else Outcome("succeeded", answer)
        self._dones.pop(name)(outcome)

    def cancel(self, reason: str) -> None:
        self.canceled.append(reason)
        for name in list(self._dones):
            if name not in self._ready:
                self._dones.pop(name)(Outcome("canceled"))
