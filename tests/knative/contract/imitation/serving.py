"""A stand-in for Knative Serving: revisions, the KPA's arithmetic, the activator, the choice of the pod that goes.

Time runs `speed` times faster than in a cluster: a window of 60 s takes 60 / speed.
"""

from __future__ import annotations

import collections
import http.client
import math
import random
import threading
import time
from pathlib import Path
from typing import Any

from imitation.kubernetes_api import KubernetesApi
from imitation.pods import Pod

_SERVING = "/apis/serving.knative.dev/v1"
_KEY = "autoscaling.knative.dev/"
TICK_S = 2.0
SCRAPE_S = 1.0
PANIC_PART = 0.1
CREATE_S = 3.0  # until a pod that is wanted begins to run: schedule, pull


class Revision:
    """One revision and its pods."""

    def __init__(self, name: str, service: dict[str, Any]) -> None:
        self.name = name
        self.service = service
        self.pods: list[Pod] = []
        self.samples: collections.deque[tuple[float, float]] = collections.deque()
        self.waiting = 0  # requests that the activator holds
        self.had_data = False
        self.below_since: float | None = None
        self.starting = 0

    def annotation(self, name: str, default: str) -> str:
        found = self.service["spec"]["template"]["metadata"]["annotations"].get(_KEY + name, default)
        return str(found)


class Serving:
    """The controllers and the data path of Serving."""

    def __init__(self, api: KubernetesApi, folder: Path, speed: float, *, hold_scaled: bool = True) -> None:
        self._api = api
        self._folder = folder
        self._hold_scaled = hold_scaled
        self.refuses_holds = False
        self.has_nodes = True
        self._speed = speed
        self._revisions: dict[str, list[Revision]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self.killed: list[str] = []
        threading.Thread(target=self._loop, name="autoscaler", daemon=True).start()

    def pods(self, function: str) -> list[Pod]:
        """Return the pods of a function that are not gone."""
        with self._lock:
            return [
                pod
                for path, revisions in self._revisions.items()
                if path.endswith("/" + function)
                for one in revisions
                for pod in one.pods
                if not pod.gone.is_set()
            ]

    def request(self, namespace: str, function: str, headers: dict[str, str], body: bytes, timeout_s: float) -> int:
        """Send a request by way of the activator; returns its status."""
        deadline = time.monotonic() + timeout_s
        revision = self._newest(f"{_SERVING}/namespaces/{namespace}/services/{function}")
        if revision is None:
            return 404
        with self._lock:
            revision.waiting += 1
        try:
            while not (ready := [pod for pod in revision.pods if not pod.deleting and pod.ready]):
                if time.monotonic() > deadline:
                    return 504
                time.sleep(0.02)
        finally:
            with self._lock:
                revision.waiting -= 1
        pod = random.choice(ready)
        connection = http.client.HTTPConnection("127.0.0.1", pod.proxy.port, timeout=timeout_s)
        try:
            connection.request("POST", "/", body, headers)
            response = connection.getresponse()
            return 502 if response.read() and response.status < 300 else response.status
        except (OSError, http.client.HTTPException):
            return 502
        finally:
            connection.close()

    def close(self) -> None:
        """Kill every pod."""
        self._closed.set()
        with self._lock:
            for revisions in self._revisions.values():
                for one in revisions:
                    for pod in one.pods:
                        pod.lose()

    def _newest(self, path: str) -> Revision | None:
        with self._lock:
            revisions = self._revisions.get(path)
            return revisions[-1] if revisions else None

    def _loop(self) -> None:
        next_tick = 0.0
        while not self._closed.wait(SCRAPE_S / self._speed):
            with self._lock:
                self._reconcile()
                for revisions in self._revisions.values():
                    for one in revisions:
                        self._scrape(one)
                if time.monotonic() >= next_tick:
                    next_tick = time.monotonic() + TICK_S / self._speed
                    for revisions in self._revisions.values():
                        for one in revisions:
                            self._scale(one, newest=one is revisions[-1])

    def _reconcile(self) -> None:
        services = self._api.everywhere(_SERVING, "services")
        for path, service in services.items():
            revisions = self._revisions.setdefault(path, [])
            if not revisions or revisions[-1].service["spec"] != service["spec"]:
                self._revise(path, service, revisions)
        for path in self._revisions.keys() - services.keys():
            for one in self._revisions[path]:
                for pod in one.pods:
                    pod.delete()

    def _revise(self, path: str, service: dict[str, Any], revisions: list[Revision]) -> None:
        metadata = service["metadata"]
        name = f"{metadata['name']}-{len(revisions) + 1:05d}"
        revisions.append(Revision(name, service))
        labels = {**metadata["labels"], "serving.knative.dev/service": metadata["name"]}
        self._api.put(
            f"{_SERVING}/namespaces/{metadata['namespace']}/revisions/{name}",
            {"metadata": {"name": name, "namespace": metadata["namespace"], "labels": labels, "annotations": {}}},
        )
        status = {
            "observedGeneration": metadata["generation"],
            "latestCreatedRevisionName": name,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._api.status(path, status)

    def _scrape(self, revision: Revision) -> None:
        now = time.monotonic()
        revision.pods = [pod for pod in revision.pods if not pod.gone.is_set()]
        total = float(revision.waiting)
        for pod in revision.pods:
            if not pod.deleting and pod.ready:
                total += pod.proxy.report()
                revision.had_data = True
        revision.had_data = revision.had_data or revision.waiting > 0
        revision.samples.append((now, total))
        window_s = float(revision.annotation("window", "60s").removesuffix("s")) / self._speed
        while revision.samples and revision.samples[0][0] < now - window_s:
            revision.samples.popleft()

    def _scale(self, revision: Revision, *, newest: bool) -> None:
        if not revision.had_data:
            return  # "No data to scale on yet": a revision that never ran starts nothing, whatever its floor
        now = time.monotonic()
        target = float(revision.annotation("target", "100"))
        span_s = (revision.samples[-1][0] - revision.samples[0][0]) if revision.samples else 0.0
        average = sum(value for _, value in revision.samples) / max(1, len(revision.samples))
        recent = [value for at, value in revision.samples if at >= now - PANIC_PART * max(span_s, 0.1)]
        panic = math.ceil(sum(recent) / max(1, len(recent)) / target)
        desired = math.ceil(round(average / target, 6))
        alive = [pod for pod in revision.pods if not pod.deleting]
        if panic >= 2 * max(1, len(alive)) or (revision.waiting and not alive):
            desired = max(desired, panic, len(alive), 1)
        if newest:
            desired = max(desired, self._floor(revision))
        most = int(revision.annotation("max-scale", "0"))
        desired = min(desired, most) if most else desired
        count = len(alive) + revision.starting
        if desired > count:
            revision.below_since = None
            for _ in range(desired - count):
                revision.starting += 1
                threading.Timer(CREATE_S / self._speed, self._create, (revision,)).start()
        elif desired < len(alive):
            self._scale_down(revision, alive, desired, now)
        else:
            revision.below_since = None

    def _scale_down(self, revision: Revision, alive: list[Pod], desired: int, now: float) -> None:
        delay_s = float(revision.annotation("scale-down-delay", "0s").removesuffix("s")) / self._speed
        revision.below_since = revision.below_since or now
        if now - revision.below_since < delay_s:
            return
        order = sorted(alive, key=lambda pod: (pod.ready, pod.deletion_cost, -pod.started_s))
        for pod in order[: len(alive) - desired]:
            self.killed.append(pod.name)
            pod.delete()

    def _floor(self, revision: Revision) -> int:
        namespace = revision.service["metadata"]["namespace"]
        found = self._api.get(f"{_SERVING}/namespaces/{namespace}/revisions/{revision.name}")
        return int((found or {"metadata": {}})["metadata"].get("annotations", {}).get(_KEY + "min-scale", 0))

    def _create(self, revision: Revision) -> None:
        with self._lock:
            revision.starting -= 1
            if self._closed.is_set() or not self.has_nodes:
                return
            pod = Pod(
                self._api, self._folder, revision.name, revision.service, self._speed, hold_scaled=self._hold_scaled
            )
            pod.proxy.refuses_holds = self.refuses_holds
            revision.pods.append(pod)
