"""The hold: one request at a time through queue-proxy while an attempt runs, whatever breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainlet_knative.hosts import KnativePodHost, worker_id

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def host(queue_proxy: Any) -> Iterator[KnativePodHost]:
    """Return a host that renews its hold every 100 ms."""
    host = KnativePodHost(port=queue_proxy.port, renew_s=0.1, beat_s=0.02, retry_s=0.01, probe_s=0.01)
    queue_proxy.stream, queue_proxy.path = host.hold_stream, host.hold_path
    yield host
    host.close()


def test_it_holds_from_busy_to_idle(host: KnativePodHost, queue_proxy: Any, eventually: Eventually) -> None:
    assert queue_proxy.holds == []
    host.busy()
    eventually(lambda: queue_proxy.in_flight == 1)
    host.idle()
    eventually(lambda: queue_proxy.in_flight == 0)
    seen = len(queue_proxy.holds)
    host.busy()
    eventually(lambda: len(queue_proxy.holds) > seen)


def test_it_renews_before_the_timeout_and_never_holds_twice(
    host: KnativePodHost, queue_proxy: Any, eventually: Eventually
) -> None:
    host.busy()
    eventually(lambda: len(queue_proxy.holds) >= 4)
    assert queue_proxy.most_in_flight == 1


def test_it_tries_again_when_the_hold_breaks(host: KnativePodHost, queue_proxy: Any, eventually: Eventually) -> None:
    queue_proxy.broken = True
    host.busy()
    eventually(lambda: len(queue_proxy.holds) >= 3)
    queue_proxy.broken = False
    eventually(lambda: queue_proxy.in_flight == 1)


def test_it_starts_no_new_hold_while_the_pod_drains(
    host: KnativePodHost, queue_proxy: Any, eventually: Eventually
) -> None:
    reasons: list[str] = []
    host.watch(reasons.append)
    queue_proxy.draining = True
    eventually(lambda: reasons)
    before = len(queue_proxy.holds)
    host.busy()
    probes = queue_proxy.probes
    assert not host._closed.wait(0.1)
    assert len(queue_proxy.holds) == before
    assert queue_proxy.probes == probes, "the watch ended when it had told"


def test_the_path_of_the_hold_is_a_secret() -> None:
    paths = {KnativePodHost().hold_path for _ in range(10)}
    assert len(paths) == 10
    assert all(len(path.rpartition("/")[2]) >= 32 for path in paths)


def test_a_worker_is_named_after_its_pod() -> None:
    assert worker_id({"TRAINLET_NAMESPACE": "trainlet-default", "HOSTNAME": "train-00001-x"}) == (
        "trainlet-default.train-00001-x"
    )
