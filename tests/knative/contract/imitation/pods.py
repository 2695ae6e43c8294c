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
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    process.kill()

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
            status = "True" if self.ready else "False"
            self._api.status(self.path, {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]})
            if self._process.poll() is not None and not self.deleting:
                if self.gone.wait(RESTART_S / self._speed):
                    return
                self._process.wait()
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        (container,) = self._spec["containers"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        token = self._folder / "token"
        token.write_text(self._api.token(self.namespace, self._spec["serviceAccountName"], self.name))
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINLET_", "KUBE"))}
        environment = {
            **own,
            **{one["name"]: one["value"] for one in container["env"]},
            "HOME": str(self._folder),
            "HOSTNAME": self.name,
            "PORT": str(self._user_port),
            "K_SERVICE": self.function,
            "K_REVISION": self.revision,
            "TRAINLET_HOME": str(self._folder / "home"),
            "TRAINLET_QUEUE_PORT": str(self.proxy.port),
            "TRAINLET_HEARTBEAT_S": os.environ.get("TRAINLET_HEARTBEAT_S", "0.2"),
        }
        if self._hold_scaled:
            environment["TRAINLET_HOLD_S"] = str(float(environment["TRAINLET_HOLD_S"]) / self._speed)
        assert environment["TRAINLET_WORKER_TOKEN_FILE"].startswith(mounted["token"])
        environment["TRAINLET_WORKER_TOKEN_FILE"] = str(token)
        log = (self._folder / "log").open("ab")
        with log:
            command = [sys.executable, *container["command"][1:]]
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
