"""Every pod keeps connections open: the platform answers beside hundreds of them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from trainlet.client import connect


def test_a_request_is_answered_beside_three_hundred_open_connections(settings: Any) -> None:
    client = connect(settings)
    at = urlsplit(client.url)
    with ExitStack() as open_ones:
        for _ in range(300):
            one = open_ones.enter_context(socket.create_connection((at.hostname, at.port), timeout=10))
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"
        assert client.list_runs(1) == []
