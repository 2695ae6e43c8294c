"""The drain watch: queue-proxy says it half a minute before SIGTERM does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainlet_knative.hosts import KnativePodHost

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def host(queue_proxy: Any) -> Iterator[KnativePodHost]:
    """Return a host that probes every 10 ms; SIGTERM means afterwards what it meant before."""
    before = signal.getsignal(signal.SIGTERM)
    host = KnativePodHost(port=queue_proxy.port, probe_s=0.01)
    yield host
    host.close()
    signal.signal(signal.SIGTERM, before)


def test_a_drain_is_told_once(host: KnativePodHost, queue_proxy: Any, eventually: Eventually) -> None:
    reasons: list[str] = []
    host.watch(reasons.append)
    eventually(lambda: queue_proxy.probes >= 3)
    assert reasons == []
    queue_proxy.draining = True
    eventually(lambda: reasons)
    os.kill(os.getpid(), signal.SIGTERM)
    assert reasons == ["the pod is going away: queue-proxy drains"]


def test_sigterm_is_the_last_notice(host: KnativePodHost, queue_proxy: Any, eventually: Eventually) -> None:
    reasons: list[str] = []
    host.watch(reasons.append)
    os.kill(os.getpid(), signal.SIGTERM)
    eventually(lambda: reasons)
    assert reasons == ["got SIGTERM"]


def test_probes_do_not_count_as_requests(host: KnativePodHost, queue_proxy: Any, eventually: Eventually) -> None:
    host.watch(lambda reason: None)
    eventually(lambda: queue_proxy.probes >= 3)
    assert queue_proxy.most_in_flight == 0


def test_a_queue_proxy_that_is_not_up_yet_is_no_drain(eventually: Eventually) -> None:
    before = signal.getsignal(signal.SIGTERM)
    reasons: list[str] = []
    host = KnativePodHost(port=1, probe_s=0.01)
    host.watch(reasons.append)
    host._closed.wait(0.1)
    host.close()
    signal.signal(signal.SIGTERM, before)
    assert reasons == []
