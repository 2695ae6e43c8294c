"""A stand-in for a Kubernetes Service: one address, behind it replicas that come and go.

A replica takes connections while it is ready; one that must go keeps those that it has until it closes them itself.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading


class Balancer:
    """Forwards each connection to the next replica that takes it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._ready: list[int] = []
        self._turns = itertools.count()
        threading.Thread(target=self._accept, daemon=True).start()

    def add(self, port: int) -> None:
        self._ready = [*self._ready, port]

    def remove(self, port: int) -> None:
        self._ready = [one for one in self._ready if one != port]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        ready = self._ready
        turn = next(self._turns)
        with caller:
            for number in range(len(ready)):
                try:
                    replica = socket.create_connection(("127.0.0.1", ready[(turn + number) % len(ready)]), timeout=5)
                except OSError:
                    continue
                replica.settimeout(None)
                with replica:
                    back = threading.Thread(target=_pump, args=(replica, caller), daemon=True)
                    back.start()
                    _pump(caller, replica)
                    back.join()
                return


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy one direction to its end, and tell the other side that it has come."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            one.shutdown(how)
