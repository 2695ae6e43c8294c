"""The dispatcher's lease, kept alive on connections of its own, and the last words of a pod that is told to end.

A pod that gets SIGTERM has less than a second, often none: no new connection can be made then. So the request that asks
to stop the task is ready, and goes out in one piece on a connection that is open anyway. There are two, used by turns,
because the last words must not stand behind a renewal that is not answered yet: a server that cannot deliver the answer,
with the pod gone, drops whatever comes after it. When they are lost, the lease runs out and the task stops after a
checkpoint all the same.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from pydantic import BaseModel

from trainlet.client import ApiUnreachable
from trainlet.core import wire

RENEW_S = 15.0
TIMEOUT_S = 10.0


class Lease:
    """Renews a dispatcher's lease from a thread until `close`. `token` is asked each time: it may have been renewed."""

    def __init__(self, url: str, token: Callable[[], str | None], lease: wire.DispatcherLease, task: str) -> None:
        self._url, self._token = urlsplit(url), token
        self._lease, self._task = lease, task
        self._farewell = b""
        self._every_s = min(RENEW_S, lease.lease_s / 4)
        self._channels: list[socket.socket | None] = [None, None]
        self._turn = 0  # the connection of the renewal that is under way, or of the last one
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to renew, at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._over.set()
        self._thread.join(timeout=TIMEOUT_S)
        self._drop_all()

    def say_farewell(self) -> None:
        """Ask to stop the task, without waiting for anything: one write on the quiet connection, or nothing."""
        channel = self._channels[1 - self._turn] or self._channels[self._turn]
        if channel is not None:
            with contextlib.suppress(OSError, ValueError):
                channel.setblocking(False)
                channel.send(self._farewell)

    def _request(self, head: str, path: str, body: BaseModel) -> bytes:
        raw = body.model_dump_json().encode()
        line = f"POST {self._url.path.rstrip('/')}{path} HTTP/1.1\r\n"
        return f"{line}{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw

    def _keep(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ApiUnreachable):
                self._renew()
            if all(self._channels):
                self._over.wait(self._every_s)
            elif not any(self._channels):
                self._over.wait(1.0)

    def _renew(self) -> None:
        """Renew once; a connection that the other side has closed meanwhile is made anew, once."""
        head = _header(self._url.netloc, self._token())
        renewal = self._request(head, f"/v1/dispatchers/{self._lease.id}:heartbeat", self._lease)
        stop = wire.Cancel(reason="the dispatch pod was told to end")
        self._farewell = self._request(head, f"/v1/tasks/{self._task}:cancel", stop)
        self._turn = 1 - self._turn
        for fresh in (False, True):
            try:
                channel = self._channels[self._turn]
                if channel is None:
                    channel = self._channels[self._turn] = self._connect()
                channel.sendall(renewal)
                reply = http.client.HTTPResponse(channel, method="POST")
                reply.begin()
                reply.read()
                if reply.will_close:
                    self._drop_all()
                return
            except (OSError, http.client.HTTPException):
                self._drop_all()  # what ended this one has most likely ended the other
                if fresh:
                    raise

    def _connect(self) -> socket.socket:
        secure = self._url.scheme == "https"
        host, port = self._url.hostname or "localhost", self._url.port or (443 if secure else 80)
        plain = socket.create_connection((host, port), timeout=TIMEOUT_S)
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain

    def _drop_all(self) -> None:
        channels, self._channels = self._channels, [None, None]
        for channel in channels:
            if channel is not None:
                channel.close()


def _header(host: str, token: str | None) -> str:
    lines = [f"Host: {host}", "Content-Type: application/json", f"{wire.PROTOCOL_HEADER}: {wire.PROTOCOL}"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "".join(f"{line}\r\n" for line in lines)
