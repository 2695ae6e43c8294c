"""The worker's life: ask for work, do it, ask again, wait to be woken, go when it is idle or told to.

One lock decides between an event and the end: a worker that has decided to go answers 503, and asks one last time. Every
request for work has a nonce, and the next one repeats it when no answer came: an attempt whose reply was lost is then
handed out again, instead of waiting for its lease to run out.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Sequence

from trainlet.client import ApiUnreachable, TakenError
from trainlet.client.errors import ApiFailed
from trainlet.core.clocks import SystemClock
from trainlet.core.errors import AccessError, TrainletError
from trainlet.core.protocols import WorkerHost
from trainlet.core.wire import ClaimReply, ClaimRequest
from trainlet_functions.worker.api import Api
from trainlet_functions.worker.attempts import Attempt, Teller
from trainlet_functions.worker.nurseries import Nursery
from trainlet_functions.worker.settings import WorkerSettings

DECIDE_S = 0.5  # an event is answered within a second, also while the worker asks for work
ASK_AGAIN_S = 1.0
HURRY_S = 2.0


class Worker:
    """Serves one function. `run` is for the main thread; `wake` comes from the HTTP server, `drain` from the host."""

    def __init__(
        self,
        settings: WorkerSettings,
        host: WorkerHost,
        url: str | None,
        nursery: Nursery | None = None,
        tellers: Sequence[Teller] = (),
    ) -> None:
        self._settings = settings
        self._host = host
        self._url = url
        self._api = Api(settings)
        self._claimed: ClaimReply | None = None
        self._busy = False
        self._draining = False
        self._drains = 0
        self._reason = ""
        self._attempt: Attempt | None = None
        self._process = uuid.uuid4().hex[:16]
        self._nonce = self._new_nonce()
        self._next_ask = 0.0
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._nursery = nursery
        self._tellers = tellers
        self._bell, self._clapper = os.pipe()
        threading.Thread(target=self._hear_bell, name="drain", daemon=True).start()

    def ready(self) -> bool:
        """Say whether the worker takes work; a busy one is ready too, or Knative would take it out of service."""
        return not self._draining

    def wake(self, task: str, epoch: int, sender: str | None = None) -> int:
        """Claim the task when idle; returns the HTTP status for the event. `sender` is the token that came with it."""
        if not self._lock.acquire(timeout=DECIDE_S):
            return 503
        try:
            if self._draining:
                return 503
            if self._busy or self._claimed is not None:
                return 202
            try:
                self._claimed = self._api.claim(task, epoch, self._request(sender))
            except TakenError:
                return 202
            except AccessError:
                return 403
            except TrainletError:
                self._next_ask = 0.0  # the claim may have arrived: asking with its nonce finds it
                self._woken.set()
                return 503
            self._busy = True
            self._nonce = self._new_nonce()
        finally:
            self._lock.release()
        self._woken.set()
        return 202

    def drain(self, reason: str) -> None:
        """Stop taking work and have the running attempt save and end. The second call is in more of a hurry.

        Called from signal handlers: it takes no lock, a thread of the worker does the rest.
        """
        self._drains += 1
        self._draining = True
        self._reason = reason
        os.write(self._clapper, b"!")

    def run(self) -> None:
        """Work until told to go, or until nothing came for a while."""
        idle_since = time.monotonic()
        while not self._draining:
            claim = self._next()
            if claim is not None:
                self._do(claim)
                idle_since = time.monotonic()
                continue
            idle_s = time.monotonic() - idle_since
            left = ASK_AGAIN_S if self._settings.stays else self._settings.limits.warm_s - idle_s
            if left <= 0 or self._api.parent_gone():
                if self._last_call():
                    break
                idle_since = time.monotonic()
                continue
            self._woken.wait(min(left, ASK_AGAIN_S))
        with self._lock:
            claim, self._claimed = self._claimed, None
        if claim is not None:
            self._do(claim)  # claimed while the notice came: it ends as preempted at once
        if self._nursery is not None:
            self._nursery.close()

    def run_one(self, task: str, epoch: int) -> int:
        """Claim one attempt, do it and return the exit status: of a worker that lives for one event.

        Repeats the claim while the API does not answer. A task that is taken or over is no failure: the event was a
        repeated one.
        """
        while not self._draining:
            status = self.wake(task, epoch)
            claim, self._claimed = self._claimed, None
            if claim is not None:
                self._do(claim)
            if status != 503:
                break
            self._woken.clear()
            self._woken.wait(ASK_AGAIN_S)
        if self._nursery is not None:
            self._nursery.close()
        return 1 if status == 403 else 0

    def _hear_bell(self) -> None:
        while os.read(self._bell, 1):
            attempt = self._attempt
            if attempt is not None:
                grace_s = None if self._drains == 1 else HURRY_S
                attempt.stop("preempted", f"the worker must go: {self._reason}", grace_s=grace_s)
            self._woken.set()

    def _next(self) -> ClaimReply | None:
        """Return what an event claimed, else ask: at the start, when woken, after a task, and now and then."""
        with self._lock:
            asked = self._woken.is_set() or time.monotonic() >= self._next_ask
            self._woken.clear()
            if self._claimed is None and asked and not self._draining:
                self._claimed = self._ask()
            self._busy = self._claimed is not None
            claim, self._claimed = self._claimed, None
            return claim

    def _last_call(self) -> bool:
        """Decide to go: from here on events get 503. Returns False when there was work after all."""
        with self._lock:
            self._draining = True
            claim = self._claimed = self._ask()
            if claim is None:
                return True
            self._draining = self._drains > 0
            self._woken.set()
            return False

    def _ask(self) -> ClaimReply | None:
        """Ask for the oldest task of this function; no answer is asked for again, with the same nonce."""
        try:
            claim = self._api.claim_next(self._request())
        except (ApiUnreachable, ApiFailed, TakenError):
            self._next_ask = time.monotonic() + ASK_AGAIN_S
            return None
        self._next_ask = time.monotonic() + self._settings.limits.announce_s
        self._nonce = self._new_nonce()
        return claim

    def _do(self, claim: ClaimReply) -> None:
        self._busy = True
        self._host.busy()
        try:
            attempt = self._attempt = Attempt(self._settings, self._api, claim, SystemClock(), self._tellers)
            if self._draining:
                attempt.stop("preempted", f"the worker must go: {self._reason}")
            self._nursery = attempt.run(self._nursery)
        finally:
            self._attempt = None
            self._host.idle()
            with self._lock:
                self._busy = False
        self._woken.set()

    def _new_nonce(self) -> str:
        return f"{self._process}.{uuid.uuid4().hex}"

    def _request(self, sender: str | None = None) -> ClaimRequest:
        mine = self._settings
        return ClaimRequest(
            worker=mine.worker,
            nonce=self._nonce,
            url=self._url,
            devices=None if mine.devices is None else list(mine.devices),
            event_token=sender,
            revision=mine.revision,
        )
