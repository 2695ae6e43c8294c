"""The training API as a worker sees it: it may go away, move, and come back, and the worker goes on meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from trainlet.client import ApiUnreachable
from trainlet.client.http import Client
from trainlet.core import wire
from trainlet_functions.worker.settings import WorkerSettings

_Reply = TypeVar("_Reply")
CLAIM_S = 0.8


class Api:
    """Calls the API where it is now, and knows since when it has not answered."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._parent = os.getppid()
        self._lock = threading.Lock()
        self._url = settings.api
        self._connect()
        self._lost_since: float | None = None

    def orphaned(self, patience_s: float = 0.0) -> bool:
        """Say whether the API has been away for longer than a local worker waits, and its parent is gone too."""
        lost = self._lost_since
        wait_s = self._settings.limits.orphan_s + patience_s
        return lost is not None and time.monotonic() - lost > wait_s and self.parent_gone()

    def parent_gone(self) -> bool:
        """Say whether the process that started this worker is gone; in a pod (no platform file) it never counts."""
        return self._settings.platform_file is not None and os.getppid() != self._parent

    def claim(self, task: str, epoch: int, body: wire.ClaimRequest) -> wire.ClaimReply:
        """Claim an attempt; no retry, because the caller has to answer within a second."""
        return self._call(lambda _: self._quick.claim(task, epoch, body, retry_s=0))

    def claim_next(self, body: wire.ClaimRequest) -> wire.ClaimReply | None:
        """Ask for the oldest dispatched task."""
        return self._call(lambda client: client.claim_next(self._settings.function, body, retry_s=0.5))

    def heartbeat(self, task: str, epoch: int, token: str, body: wire.HeartbeatRequest) -> wire.HeartbeatReply:
        """Renew the lease."""
        return self._call(lambda client: client.heartbeat(task, epoch, token, body))

    def append_logs(self, task: str, epoch: int, token: str, body: wire.LogsRequest) -> int:
        """Append log lines."""
        return self._call(lambda client: client.append_logs(task, epoch, token, body))

    def finish(self, task: str, epoch: int, token: str, body: wire.FinishRequest) -> wire.TaskView:
        """End an attempt."""
        return self._call(lambda client: client.finish(task, epoch, token, body))

    def _call(self, action: Callable[[Client], _Reply]) -> _Reply:
        try:
            reply = action(self._client)
        except ApiUnreachable:
            self._lost_since = self._lost_since or time.monotonic()
            self._move()
            raise
        self._lost_since = None
        return reply

    def _move(self) -> None:
        """Follow an embedded platform that was started again at another place."""
        with self._lock:
            url = self._settings.current_api()
            if url != self._url:
                self._url = url
                self._connect()

    def _connect(self) -> None:
        token = self._settings.token_file or self._settings.token
        self._client = Client(self._url, token, timeout_s=10.0)
        # For what has to be decided within a second.
        self._quick = Client(self._url, token, timeout_s=CLAIM_S)
