"""A whole cluster of the imitation, with a real training API beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from imitation.eventing import Broker
from imitation.jobs import JobPod, JobSinks
from imitation.kubernetes_api import KubernetesApi
from imitation.pods import Pod
from imitation.replicas import Balancer
from imitation.serving import CREATE_S, Serving

TOKEN = "tl_bootstrap-of-the-contract-tests"
NAMESPACE = "trainlet-default"
FLOOR = "autoscaling.knative.dev/min-scale"
_REVISIONS = f"/apis/serving.knative.dev/v1/namespaces/{NAMESPACE}/revisions"
_SERVICES = f"/apis/serving.knative.dev/v1/namespaces/{NAMESPACE}/services"


@dataclass(frozen=True)
class Holds:
    """The holds of one pod: how many, how many at the same time at most, how many were cut by the timeout."""

    count: int
    most_at_once: int
    cut: int


class ImitationCluster:
    """A cluster on loopback."""

    name = "imitation"
    namespace, project = NAMESPACE, "default"
    patience = 1.0
    slack = 5.0  # the pods of a test share two cores with everything else

    def __init__(
        self,
        folder: Path,
        *,
        speed: float = 10.0,
        warm_s: int = 60,
        drain_s: int = 3600,
        start_s: int = 1200,
        hold_scaled: bool = True,
        oidc: bool = False,
        database: str | None = None,
        replicas: int = 0,
        **more: Any,
    ) -> None:
        self.speed = speed
        self.folder = folder
        self.token = TOKEN
        self.kubernetes = KubernetesApi()
        self.serving = Serving(self.kubernetes, folder / "pods", speed, hold_scaled=hold_scaled)
        self.jobs = JobSinks(self.kubernetes, folder / "pods", speed)
        self.broker = Broker(self.kubernetes, self.serving, self.jobs, speed, oidc=oidc)
        self._balancer = Balancer() if replicas else None  # without, the API is one process at one port
        self._port = _free_port() if self._balancer is None else self._balancer.port
        self.url = f"http://127.0.0.1:{self._port}"
        (folder / "kubeconfig").write_text(self.kubernetes.kubeconfig())
        settings = {
            "image": "worker:0",
            "api_url": self.url,
            "store_url": str(folder / "store"),
            "dead_letter_url": f"{self.url}/v1/dead-letters",
            "broker_ingress": self.broker.url,
            "warm_s": warm_s,
            "drain_s": drain_s,
            "start_s": start_s,
            "virtual_gpus": True,
            "oidc": oidc,
            "open_events": not oidc,
            **more,
        }
        (folder / "cluster.yaml").write_text(yaml.safe_dump(settings))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TRAINLET_")},
            "KUBECONFIG": str(folder / "kubeconfig"),
            "TRAINLET_BOOTSTRAP_TOKEN": TOKEN,
            "TRAINLET_DATABASE_URL": database or f"sqlite:///{folder / 'state.db'}",
            "TRAINLET_SIGNING_KEY_FILE": str(folder / "signing.key"),
            "TRAINLET_LEASE_S": "4",
            "TRAINLET_HEARTBEAT_S": "0.2",
            "TRAINLET_ANNOUNCE_S": "2",
        }
        self._api: subprocess.Popen[bytes] | None = None
        self._replicas: list[tuple[subprocess.Popen[bytes], int]] = []
        if self._balancer is None:
            self.start_api()
        for _ in range(replicas):
            self._add_replica()

    # -- the training API

    def start_api(self) -> None:
        """Start the training API, or start it again."""
        self._api = self._started(self._port, "api")

    def roll(self) -> Iterator[None]:
        """Replace every replica of the API as a rolling update does; yields when a new one is ready beside the old."""
        assert self._balancer is not None
        for old, port in list(self._replicas):
            self._add_replica()
            yield
            self._balancer.remove(port)
            old.terminate()
            assert old.wait(60) == 0, self.api_log()[-3000:]
            self._replicas.remove((old, port))

    def api_log(self) -> str:
        """Return what all replicas of the API have printed."""
        return (self.folder / "api.log").read_text()

    def _add_replica(self) -> None:
        assert self._balancer is not None
        port = _free_port()
        self._replicas.append((self._started(port, f"api-{port}"), port))
        self._balancer.add(port)

    def _started(self, port: int, home: str) -> subprocess.Popen[bytes]:
        """Start a process of the API and wait until it is ready."""
        command = [sys.executable, "-m", "trainlet_functions.api", "--cluster", str(self.folder / "cluster.yaml")]
        command += ["--port", str(port), "--home", str(self.folder / home)]
        with (self.folder / "api.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        deadline = time.monotonic() + 150
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10.0, trust_env=False).status_code == 200:
                    return process
            time.sleep(0.05)
        process.kill()
        process.wait()
        raise AssertionError(f"the training API did not become ready: {self.api_log()[-3000:]}")

    def kill_api(self) -> None:
        """SIGKILL the training API."""
        assert self._api is not None
        self._api.kill()
        self._api.wait()

    # -- what a person with kubectl does

    def pods(self, function: str) -> list[str]:
        """Return the names of a function's pods."""
        return [pod.name for pod in (*self.serving.pods(function), *self.jobs.pods(function))]

    def kill_pod(self, name: str) -> None:
        """SIGKILL everything in a pod; its container starts again."""
        self._pod(name).kill()

    def lose_pod(self, name: str) -> None:
        """Lose the node of a pod."""
        self._pod(name).lose()

    def delete_pod(self, name: str) -> None:
        """Delete a pod, as a drain of its node does."""
        self._pod(name).delete()

    def stop_processes(self, name: str) -> None:
        """SIGSTOP the worker of a pod."""
        os.kill(self._pod(name)._process.pid, signal.SIGSTOP)

    def redeploy(self, function: str) -> None:
        """Change the template of a Service: Knative makes a new Revision."""
        annotations = {"example.com/changed": str(time.monotonic_ns())}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        path = f"{_SERVICES}/{function}"
        with self.kubernetes.lock:
            self.kubernetes._patch(path, patch)
            self.kubernetes.objects[path]["metadata"]["generation"] += 1

    def revisions(self, function: str) -> list[str]:
        """Return the names of a function's revisions, the oldest first."""
        return sorted(
            one["metadata"]["name"]
            for one in self.kubernetes.under(_REVISIONS).values()
            if one["metadata"]["labels"]["serving.knative.dev/service"] == function
        )

    def floor(self, function: str) -> int:
        """Return the floor of the newest Revision."""
        found = self.kubernetes.get(f"{_REVISIONS}/{self.revisions(function)[-1]}")
        assert found is not None
        return int(found["metadata"].get("annotations", {}).get(FLOOR, 0))

    def cold_start(self, name: str) -> float:
        """Return how long a pod took from being wanted to being ready."""
        return self._served(name).cold_start_s + self.seconds(CREATE_S)

    def pinned(self, name: str) -> bool:
        """Say whether a pod is expensive to delete."""
        return self._pod(name).deletion_cost > 0

    def post_event(self, headers: dict[str, str], body: bytes, source: str | None = None) -> None:
        """Send an event to the broker; as a source, with the token of its service account."""
        if source is not None:
            audience = f"eventing.knative.dev/broker/{NAMESPACE}/default"
            token = self.kubernetes.token(NAMESPACE, source, audience=audience)
            headers = {**headers, "Authorization": f"Bearer {token}"}
        httpx.post(f"{self.broker.url}/{NAMESPACE}/default", headers=headers, content=body).raise_for_status()

    def holds(self, name: str) -> list[str]:
        """Return the paths of the holds that a pod's queue-proxy has seen."""
        return list(self._served(name).proxy.holds)

    def look_at_holds(self, name: str) -> Holds | None:
        """Return what a pod's queue-proxy has seen of its holds; None where nobody can look."""
        proxy = self._served(name).proxy
        return Holds(len(proxy.holds), proxy.most_holds, proxy.cut)

    def refuse_holds(self, refused: bool = True) -> None:
        """Have every pod's queue-proxy refuse holds."""
        self.serving.refuses_holds = refused

    def lose_nodes(self, lost: bool = True) -> None:
        """Have no node that fits: pods that are wanted do not come."""
        self.serving.has_nodes = not lost

    def imitates(self, what: str) -> None:
        """Say that a test needs what only an imitation can do."""

    def let_pass(self, cluster_s: float) -> None:
        """Let time pass that nothing ends."""
        time.sleep(self.seconds(cluster_s))

    def seconds(self, cluster_s: float) -> float:
        """Return how long something takes here that takes `cluster_s` on a cluster."""
        return cluster_s / self.speed

    def log(self, name: str) -> str:
        """Return what a pod has printed."""
        return (self.folder / "pods" / name / "log").read_text()

    def close(self) -> None:
        """End everything."""
        self.serving.close()
        self.jobs.close()
        if self._api is not None:
            self._api.kill()
            self._api.wait()
        for process, _ in self._replicas:
            process.kill()
            process.wait()
        if self._balancer is not None:
            self._balancer.close()
        self.broker.close()
        self.kubernetes.close()

    def _pod(self, name: str) -> Pod | JobPod:
        jobs = (self.jobs.pods(sink.rpartition("/")[2]) for sink in self.kubernetes.everywhere("/apis", "jobsinks"))
        return next((pod for pods in jobs for pod in pods if pod.name == name), None) or self._served(name)

    def _served(self, name: str) -> Pod:
        function = next(path for path in self.serving._revisions if name.startswith(path.rpartition("/")[2] + "-"))
        return next(pod for pod in self.serving.pods(function.rpartition("/")[2]) if pod.name == name)

    def object(self, path: str) -> dict[str, Any] | None:
        """Return an object of the Kubernetes API."""
        return self.kubernetes.get(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
