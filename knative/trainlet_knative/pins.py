"""Pins: busy pods are made expensive to delete, on a thread of their own, because a claim must not wait for Kubernetes.

Only the newest wish for a pod counts; one that fails is tried again until it is done or replaced. Losing a pin costs a
preemption, never work: the worker still sees the drain and saves.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from trainlet.core.errors import PlatformError
from trainlet_knative.connections import Kubernetes, path

_LOG = logging.getLogger(__name__)
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
BUSY_COST = "1000"
RETRY_S = 1.0
_MOST_TRIES = 60


class Pins:
    """Sets and clears the deletion cost of pods in the background."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._wishes: OrderedDict[str, tuple[bool, int]] = OrderedDict()  # worker -> busy, tries
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="pins", daemon=True)
        self._thread.start()

    def set(self, worker: str, busy: bool) -> None:
        """Wish for a pod (`<namespace>.<pod>`) to be pinned or released. Raises PlatformError for a name of no pod."""
        if not all(worker.partition(".")):
            raise PlatformError(f"Worker {worker!r} is no pod of Knative; its id should be <namespace>.<pod>.")
        with self._changed:
            self._wishes[worker] = (busy, 0)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop; wishes that are not done are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=5.0)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wishes or self._closed)
                if self._closed:
                    return
                worker, (busy, tries) = next(iter(self._wishes.items()))
            try:
                self._patch(worker, busy)
                failed = False
            except PlatformError as error:
                failed = True
                _LOG.warning("%s could not be %s: %s", worker, "pinned" if busy else "released", error)
            with self._changed:
                if self._wishes.get(worker) == (busy, tries):
                    del self._wishes[worker]
                    if failed and tries + 1 < _MOST_TRIES:
                        self._wishes[worker] = (busy, tries + 1)  # behind the others
                if failed:
                    self._changed.wait_for(lambda: self._closed, timeout=RETRY_S)

    def _patch(self, worker: str, busy: bool) -> None:
        namespace, _, pod = worker.partition(".")
        patch = {"metadata": {"annotations": {DELETION_COST: BUSY_COST if busy else None}}}
        self._kubernetes.merge(f"{path('v1', namespace, 'pods')}/{pod}", patch)  # a pod that is gone needs no pin
