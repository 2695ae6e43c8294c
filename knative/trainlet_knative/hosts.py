"""The place a worker runs in on Knative: a pod whose queue-proxy must see a request to keep it, and tells when it drains.

Knative sees requests, not child processes. While an attempt runs, the *hold* is one request at a time from the pod to
itself through queue-proxy, so that the autoscaler counts the pod as busy. The *drain watch* asks queue-proxy every two
seconds whether the pod is going away, half a minute before SIGTERM would say so. This module must not know attempts.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

from trainlet.core.errors import UserError

_LOG = logging.getLogger(__name__)
PROBE_HEADERS = {"User-Agent": "kube-probe/trainlet", "K-Network-Probe": "queue"}


class KnativePodHost:
    """A Knative pod. The worker's server answers `hold_path` with the bytes of `hold_stream()`.

    `renew_s` is how long one hold lasts at most; it must end well before the Revision's `timeoutSeconds`.
    """

    def __init__(
        self,
        *,
        port: int = 8012,
        renew_s: float = 1800.0,
        beat_s: float = 5.0,
        retry_s: float = 0.5,
        probe_s: float = 2.0,
    ) -> None:
        self.hold_path = f"/_trainlet/hold/{secrets.token_urlsafe(24)}"
        self._port = port
        self._renew_s, self._beat_s, self._retry_s, self._probe_s = renew_s, beat_s, retry_s, probe_s
        self._changed = threading.Condition()
        self._busy = False
        self._period = 0  # grows when a busy time ends
        self._draining = False
        self._closed = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._holder: threading.Thread | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> KnativePodHost:
        """Return the host of this pod: `TRAINLET_QUEUE_PORT` is queue-proxy's, `TRAINLET_HOLD_S` how long a hold lasts.

        Raises UserError that names the variable with a wrong value.
        """
        env = os.environ if environ is None else environ
        try:
            return cls(
                port=int(env.get("TRAINLET_QUEUE_PORT", "8012")), renew_s=float(env.get("TRAINLET_HOLD_S", "1800"))
            )
        except ValueError as error:
            raise UserError(f"TRAINLET_QUEUE_PORT or TRAINLET_HOLD_S is no number: {error}.") from error

    def busy(self) -> None:
        """Begin to hold this pod; returns at once."""
        with self._changed:
            self._busy = True
            if self._holder is None:
                self._holder = threading.Thread(target=self._hold_forever, name="hold", daemon=True)
                self._holder.start()
            self._changed.notify_all()

    def idle(self) -> None:
        """Let go of the hold: the pod counts as idle from now on."""
        with self._changed:
            self._busy = False
            self._period += 1
            self._cut()
            self._changed.notify_all()

    def watch(self, drain: Callable[[str], None]) -> None:
        """Call `drain` once, when queue-proxy says that the pod goes, or at SIGTERM, which is the last notice."""
        told = threading.Event()

        def tell(reason: str) -> None:
            if not told.is_set():
                told.set()
                self._draining = True
                drain(reason)

        def hear(number: int, _frame: FrameType | None) -> None:
            tell(f"got {signal.Signals(number).name}")

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, hear)
        threading.Thread(target=self._watch, args=(tell, told), name="drain-watch", daemon=True).start()

    def close(self) -> None:
        """Stop holding and watching."""
        self._closed.set()
        self.idle()

    def hold_stream(self) -> Iterator[bytes]:
        """Yield what the server answers to a hold: a byte at once and one every few seconds, while the pod is busy.

        It ends after `renew_s`: only then does the next hold begin, so that two never overlap and count as two.
        """
        end_s = time.monotonic() + self._renew_s
        period = self._period
        while self._busy and self._period == period and time.monotonic() < end_s:
            yield b"."
            with self._changed:
                pause_s = min(self._beat_s, max(0.0, end_s - time.monotonic()))
                self._changed.wait_for(lambda: self._period != period, timeout=pause_s)

    # -- the hold

    def _hold_forever(self) -> None:
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._busy or self._closed.is_set())
            if self._closed.is_set():
                return
            if self._draining:
                self._closed.wait(self._retry_s)  # a new request would start the drain's quiet period anew
                continue
            if not self._hold_once() and self._busy:
                self._closed.wait(self._retry_s)

    def _hold_once(self) -> bool:
        """Make one hold and read it to its end; False when it failed."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3 * self._beat_s)
        try:
            connection.connect()
            with self._changed:
                if not self._busy:
                    return True
                self._connection = connection
            connection.request("GET", self.hold_path)
            response = connection.getresponse()
            if response.status != 200:
                _LOG.warning("the hold was answered with %d; trying again", response.status)
                return False
            begin_s = time.monotonic()
            while response.read1(4096):
                pass
            return time.monotonic() - begin_s >= self._renew_s / 2  # an end too early must not make a busy loop
        except (OSError, http.client.HTTPException) as error:
            if self._busy:
                _LOG.warning("the hold broke: %s; trying again", error)
            return False
        finally:
            with self._changed:
                self._connection = None
            connection.close()

    def _cut(self) -> None:
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # -- the drain watch

    def _watch(self, tell: Callable[[str], None], told: threading.Event) -> None:
        while not self._closed.is_set() and not told.is_set():
            if self._probe() == 503:
                tell("the pod is going away: queue-proxy drains")
                return
            self._closed.wait(self._probe_s)

    def _probe(self) -> int | None:
        """Return the status of queue-proxy's own health check; it neither counts as a request nor delays a drain."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2.0)
        try:
            connection.request("GET", "/", headers=PROBE_HEADERS)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def worker_id(environ: Mapping[str, str]) -> str:
    """Return the id of the worker in this pod, `<namespace>.<pod>`, by which the backend pins it."""
    namespace, pod = environ.get("TRAINLET_NAMESPACE"), environ.get("HOSTNAME")
    if not namespace or not pod:
        raise UserError("TRAINLET_NAMESPACE and HOSTNAME are not both set: this is no pod that trainlet deployed.")
    return f"{namespace}.{pod}"
