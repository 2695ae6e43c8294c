"""A stand-in for JobSinks: an event becomes a Secret and a Job, and the same event again becomes nothing.

The pod of a Job is never started again (`restartPolicy: Never`, `backoffLimit: 0`), and its end is the Job's end.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from imitation.kubernetes_api import KubernetesApi
from imitation.pods import kill_all, start_container

_SINKS = "/apis/sinks.knative.dev/v1alpha1"
START_S = 3.0  # schedule, pull


class JobPod:
    """The pod of one Job."""

    def __init__(self, api: KubernetesApi, folder: Path, name: str, sink: dict[str, Any], event: str) -> None:
        self.name = name
        self.namespace: str = sink["metadata"]["namespace"]
        self.function: str = sink["metadata"]["name"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        self._api = api
        self._template = sink["spec"]["job"]["spec"]["template"]
        self._folder = folder / name
        mount = self._folder / "jobsink-event"
        mount.mkdir(parents=True)
        (mount / "event").write_text(event)
        labels = self._template["metadata"]["labels"]
        api.put(self.path, {"metadata": {"name": name, "namespace": self.namespace, "labels": labels}})
        api.status(self.path, {"phase": "Running"})
        environment = {"K_EVENT_PATH": str(mount), "K_EXECUTION_MODE": "batch"}
        self._process = start_container(api, self._folder, self.namespace, name, self._template["spec"], environment)
        self.gone = threading.Event()
        threading.Thread(target=self._wait, name=f"job-{name}", daemon=True).start()

    @property
    def status(self) -> int | None:
        """Return the exit status of the container, None while it runs."""
        return self._process.poll()

    @property
    def deletion_cost(self) -> int:
        """Return what a scale-down would look at; a Job has none."""
        annotations = (self._api.get(self.path) or {"metadata": {}})["metadata"].get("annotations", {})
        return int(annotations.get("controller.kubernetes.io/pod-deletion-cost", 0))

    def kill(self) -> None:
        """SIGKILL the container: the Job has failed."""
        kill_all(self._process)

    lose = kill

    def delete(self) -> None:
        """End the pod as an eviction does: SIGTERM at once, SIGKILL after its grace."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        threading.Thread(target=self._terminate, daemon=True).start()

    def _terminate(self) -> None:
        try:
            self._process.wait(self._template["spec"]["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self.kill()

    def _wait(self) -> None:
        status = self._process.wait()
        self._api.status(self.path, {"phase": "Failed" if status else "Succeeded"})
        self.gone.set()


class JobSinks:
    """The JobSinks of all namespaces."""

    def __init__(self, api: KubernetesApi, folder: Path, speed: float) -> None:
        self._api = api
        self._folder = folder
        self._speed = speed
        self._jobs: dict[str, JobPod | None] = {}  # by name; None while its pod is on its way
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._look, name="jobsinks", daemon=True).start()

    def request(self, namespace: str, name: str, headers: dict[str, str], body: bytes) -> int:
        """Take an event in binary mode; returns the status."""
        sink = self._api.get(f"{_SINKS}/namespaces/{namespace}/jobsinks/{name}")
        if sink is None:
            return 404
        attributes = {key.removeprefix("ce-"): value for key, value in headers.items() if key.startswith("ce-")}
        digest = hashlib.sha256(f"{attributes['source']}\0{attributes['id']}".encode()).hexdigest()[:12]
        job = f"{name}-{digest}"
        with self._lock:
            if job in self._jobs:
                return 202
            self._jobs[job] = None
        event = {**attributes, "datacontenttype": headers["content-type"], "data": json.loads(body)}
        threading.Timer(START_S / self._speed, self._create, (job, sink, json.dumps(event))).start()
        return 202

    def pods(self, function: str) -> list[JobPod]:
        """Return the pods of a function that run."""
        return [one for one in self.all(function) if not one.gone.is_set()]

    def all(self, function: str) -> list[JobPod]:
        """Return the pods of a function, also those that ended."""
        with self._lock:
            return [one for one in self._jobs.values() if one is not None and one.function == function]

    def close(self) -> None:
        """Kill every pod."""
        self._closed.set()
        with self._lock:
            for one in self._jobs.values():
                if one is not None:
                    one.kill()

    def _create(self, job: str, sink: dict[str, Any], event: str) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._jobs[job] = JobPod(self._api, self._folder, job, sink, event)

    def _look(self) -> None:
        while not self._closed.is_set():
            for path, sink in self._api.everywhere(_SINKS, "jobsinks").items():
                conditions = [{"type": "Ready", "status": "True"}]
                generation = sink["metadata"]["generation"]
                self._api.status(path, {"observedGeneration": generation, "conditions": conditions})
            time.sleep(0.1)
