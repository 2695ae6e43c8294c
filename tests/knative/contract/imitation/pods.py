"""A pod of the imitation: a queue-proxy, and the real worker as a process, started from the environment of its spec."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

from imitation.kubernetes_api import KubernetesApi
from imitation.queue_proxy import QueueProxy

DRAIN_QUIET_S = 30.0
RESTART_S = 1.0


class Pod:
    """Starts at once; ends when `delete` was called and the drain is over, or by its grace."""

    def __init__(
        self,
        api: KubernetesApi,
        folder: Path,
        revision: str,
        service: dict[str, Any],
        speed: float,
        *,
        hold_scaled: bool = True,
    ) -> None:
        self.name = f"{revision}-{uuid.uuid4().hex[:8]}"
        self.revision = revision
        self.namespace: str = service["metadata"]["namespace"]
        self.function: str = service["metadata"]["name"]
        self.started_s = time.monotonic()
        self.cold_start_s = 0.0  # until it was ready for the first time
        self.deleting = False
        self.gone = threading.Event()
        self._api = api
        self._folder = folder / self.name
        self._folder.mkdir(parents=True)
        self._speed = speed
        self._hold_scaled = hold_scaled
        template = service["spec"]["template"]
        self._spec = template["spec"]
        self._user_port = _free_port()
        self.proxy = QueueProxy(self._user_port, self._spec["timeoutSeconds"] / speed)
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        labels = {**template["metadata"]["labels"], "serving.knative.dev/service": self.function}
        api.put(self.path, {"metadata": {"name": self.name, "namespace": self.namespace, "labels": labels}})
        self._process = self._start()
        threading.Thread(target=self._kubelet, name=f"kubelet-{self.name}", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Say whether the readiness probe, a TCP connection, succeeds."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._user_port), 0.2):
            return not self.gone.is_set()
        return False

    @property
    def deletion_cost(self) -> int:
        """Return what the ReplicaSet controller looks at first."""
        annotations = (self._api.get(self.path) or {"metadata": {}})["metadata"].get("annotations", {})
        return int(annotations.get("controller.kubernetes.io/pod-deletion-cost", 0))

    def kill(self) -> None:
        """SIGKILL every process of the container at once, as when its memory ran out; the kubelet starts it again."""
        kill_all(self._process)

    def lose(self) -> None:
        """Lose the node: nothing of the pod runs or comes back."""
        self.gone.set()
        self.kill()
        self._end()

    def delete(self) -> None:
        """Begin the end that Knative gives a pod."""
        if not self.deleting:
            self.deleting = True
            self.proxy.drain()
            threading.Thread(target=self._terminate, name=f"end-{self.name}", daemon=True).start()

    def _terminate(self) -> None:
        deadline = time.monotonic() + self._spec["timeoutSeconds"] / self._speed
        while self.proxy.quiet_for_s() < DRAIN_QUIET_S / self._speed and time.monotonic() < deadline:
            time.sleep(0.02)  # preStop: wait for the drain
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(max(2.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        self._end()

    def _end(self) -> None:
        self.gone.set()
        self._process.wait()
        self.proxy.close()
        self._api.remove(self.path)

    def _kubelet(self) -> None:
        while not self.gone.wait(0.05):
            ready = self.ready
            if ready and not self.cold_start_s:
                self.cold_start_s = time.monotonic() - self.started_s
            status = "True" if ready else "False"
            self._api.status(self.path, {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]})
            if self._process.poll() is not None and not self.deleting:
                if self.gone.wait(RESTART_S / self._speed):
                    return
                self._process.wait()
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        own = {
            "PORT": str(self._user_port),
            "K_SERVICE": self.function,
            "K_REVISION": self.revision,
            "TRAINLET_QUEUE_PORT": str(self.proxy.port),
        }
        if self._hold_scaled:
            (container,) = self._spec["containers"]
            given = next(one["value"] for one in container["env"] if one["name"] == "TRAINLET_HOLD_S")
            own["TRAINLET_HOLD_S"] = str(float(given) / self._speed)
        return start_container(self._api, self._folder, self.namespace, self.name, self._spec, own)


def start_container(
    api: KubernetesApi, folder: Path, namespace: str, name: str, spec: dict[str, Any], more: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start the worker of a pod's spec as a process, with what the kubelet gives it."""
    (container,) = spec["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    token = folder / "token"
    token.write_text(api.token(namespace, spec["serviceAccountName"], name))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINLET_", "KUBE"))}
    environment = {
        **inherited,
        **{one["name"]: one["value"] for one in container["env"]},
        "HOME": str(folder),
        "HOSTNAME": name,
        "TRAINLET_HOME": str(folder / "home"),
        "TRAINLET_HEARTBEAT_S": os.environ.get("TRAINLET_HEARTBEAT_S", "0.2"),
        **more,
    }
    assert environment["TRAINLET_WORKER_TOKEN_FILE"].startswith(mounted["token"])
    environment["TRAINLET_WORKER_TOKEN_FILE"] = str(token)
    with (folder / "log").open("ab") as log:
        command = [sys.executable, *container["command"][1:]]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL every process of a container at once."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(process.pid)
        for one in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                one.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
