"""One task of the training API, created or attached to by a key that KFP keeps over retries, and followed to its end.

KFP's retries are for transport only. The first pod of a task (retry index 0; the UI's Retry begins there again) that
finds the task failed or stopped lets it go on from its checkpoint. A later one reports what happened, because repeating
the user's code is the training API's business. A task that stopped only because its pod was lost goes on in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core import wire
from trainlet.core.clocks import Clock, SystemClock
from trainlet_pipelines.pods.taps import Tap

PATIENCE_S = 300.0
QUIET_S, BUSY_S = 4.0, 0.5
PAGE = 2_000
_Answer = TypeVar("_Answer")


def create_or_attach(client: Client, key: str, body: wire.TaskCreate, retry: int) -> wire.TaskView:
    """Return the task of this key, running again where this pod may make it; raises ConflictError for other work."""
    task = client.put_task(key, body)
    if task.state not in ("failed", "canceled"):
        return task
    lost = task.error is not None and task.error.type == "dispatcher_lost"
    if retry == 0 or lost:
        return client.resume_task(key, wire.Resume(dispatcher=body.dispatcher))
    return task


class Follower:
    """Waits for the end of a task, and says on the way why it waits and what it prints.

    Nothing is held open while it runs, so that hundreds of pods do not use up the API's threads.
    """

    def __init__(
        self,
        client: Client,
        tap: Tap,
        say: Callable[[str], None],
        *,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client, self._tap, self._say = client, tap, say
        self._clock, self._pause, self._patience_s = clock or SystemClock(), pause, patience_s
        self._told = ("", "")
        self._after = 0

    def follow(self, task: wire.TaskView) -> wire.TaskView:
        """Return the task in its terminal state, after its last line; raises ApiUnreachable when the API stays away."""
        cursor, pause_s = 0, BUSY_S
        while True:
            self._tell(task)
            over = task.state in wire.TERMINAL
            lines = self._print(task)
            if over and not lines:
                self._tap.close()
                return task
            if not over:
                pause_s = BUSY_S if lines else min(pause_s * 1.5, QUIET_S)
                waiting = task.state in ("queued", "dispatched")
                if not waiting:
                    self._pause(pause_s)
                changes = self._changes(task.run_id, cursor, 20.0 if waiting else 0.0)
                cursor = changes.cursor
                task = next((one for one in changes.tasks if one.key == task.key), task)

    def _changes(self, run_id: str, cursor: int, wait_s: float) -> wire.Changes:
        return self._patient(lambda: self._client.changes(run_id, cursor, wait_s=wait_s))

    def _tell(self, task: wire.TaskView) -> None:
        if (task.state, task.reason) != self._told:
            self._told = (task.state, task.reason)
            self._say(f"trainlet: {task.state}: {task.reason}" if task.reason else f"trainlet: {task.state}")

    def _print(self, task: wire.TaskView) -> bool:
        """Print what is new; say whether there was something."""
        found = False
        while True:
            page = self._patient(lambda: self._client.logs(task.run_id, task=task.key, after=self._after, limit=PAGE))
            if not page:
                return found
            found, self._after = True, page[-1].seq
            self._tap.write(page)

    def _patient(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask, over a restart of the API if need be."""
        gone_ns: int | None = None
        while True:
            try:
                answer = ask()
            except ApiUnreachable as error:
                if gone_ns is None:
                    gone_ns = self._clock.boot_ns()
                    self._say(f"trainlet: the training API is away; trying again: {error}")
                if (self._clock.boot_ns() - gone_ns) / 1e9 > self._patience_s:
                    raise
                self._pause(1.0)
                continue
            if gone_ns is not None:
                self._say("trainlet: the training API is back")
            return answer
