"""The training API installed into a namespace of a real cluster, for one test, from the manifests that admins apply."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
import yaml

from trainlet_knative import installs
from trainlet_knative.backend import SELECTOR
from trainlet_knative.connections import Kubernetes, path, path_of
from trainlet_knative.kustomizations import Changes, Object, render
from trainlet_knative.objects import MIN_SCALE
from trainlet_knative.pins import DELETION_COST

_SERVING = "serving.knative.dev/v1"
_API = "trainlet-api"
_FUNCTIONS = (
    (_SERVING, "services"),
    ("sinks.knative.dev/v1alpha1", "jobsinks"),
    ("eventing.knative.dev/v1", "triggers"),
    ("eventing.knative.dev/v1alpha1", "eventpolicies"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("v1", "serviceaccounts"),
)


@dataclass(frozen=True)
class Target:
    """Which cluster: a kubeconfig, a namespace with a Broker, an image of target `api`, and an S3 store for both sides."""

    kubeconfig: str
    image: str
    broker: str
    namespace: str
    store: str
    store_environment: Mapping[str, str]

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Target | None:
        """Return the target that TRAINLET_TEST_KUBECONFIG names, or None; what is missing beside it is an error."""
        kubeconfig = environ.get("TRAINLET_TEST_KUBECONFIG")
        if not kubeconfig:
            return None
        names = [f"TRAINLET_TEST_{name}" for name in ("IMAGE", "BROKER", "NAMESPACE", "STORE")]
        missing = [name for name in names if not environ.get(name)]
        assert not missing, f"TRAINLET_TEST_KUBECONFIG needs {', '.join(missing)} beside it; CONTRIBUTING.md says what"
        values = [environ[name] for name in names]
        return cls(kubeconfig, *values, {name: one for name, one in environ.items() if name.startswith("AWS_")})


class RealCluster:
    """What the tests do with a cluster; `install` and `start_api` make it ready, `close` leaves nothing behind."""

    name = "real"
    slack = 1.0
    patience = 6.0  # nodes pull images, and other people use them

    def __init__(
        self, kubernetes: Kubernetes, target: Target, folder: Path, *, warm_s: int = 60, drain_s: int = 3600,
        start_s: int = 1200, hold_scaled: bool = True, speed: float = 1.0, oidc: bool = False,
    ) -> None:  # fmt: skip
        if not hold_scaled:
            self.imitates("holds that are not renewed in time")
        if oidc:
            self.imitates("Eventing with OIDC")
        self.namespace = self.project = target.namespace
        self.token = f"tl_{secrets.token_hex(24)}"
        self.kubernetes = kubernetes
        self._target = target
        self._folder = folder
        self._forward: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        inside = f"http://{_API}.{self.namespace}.svc.cluster.local:8080"
        self._settings = {
            "image": target.image,
            "api_url": inside,
            "store_url": target.store,
            "dead_letter_url": f"{inside}/v1/dead-letters",
            "namespace": "{project}",
            "broker": target.broker,
            "store_secret": "trainlet-store",
            "virtual_gpus": True,
            "open_events": True,
            "warm_s": warm_s,
            "drain_s": drain_s,
            "start_s": start_s,
        }

    # -- the training API

    def objects(self) -> list[Object]:
        """Return what is installed: the trial overlay and a project's Role, moved into the namespace."""
        files = {"cluster.yaml": yaml.safe_dump(self._settings)}
        changes = Changes(files=files, images={_API: self._target.image}, namespace=self.namespace)
        made = render(installs.FOLDER / "overlays" / "trial", changes)
        made += render(installs.FOLDER / "project", Changes(namespace=self.namespace))
        made = [one for one in made if one["kind"] not in ("Namespace", "Broker")]
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        own = {"bootstrap-token": base64.b64encode(self.token.encode()).decode(), "signing.key": key}
        store = {name: base64.b64encode(one.encode()).decode() for name, one in self._target.store_environment.items()}
        for name, data in ((_API, own), ("trainlet-store", store)):
            metadata = {"name": name, "namespace": self.namespace}
            made.insert(0, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        for one in made:
            if one["kind"].startswith("ClusterRole"):
                one["metadata"]["name"] += f"-{self.namespace}"
            if one["kind"] == "ClusterRoleBinding":
                one["roleRef"]["name"] += f"-{self.namespace}"
            for subject in one.get("subjects", []):
                subject["namespace"] = self.namespace
            if one["kind"] == "Deployment":
                (container,) = one["spec"]["template"]["spec"]["containers"]
                container["env"].append({"name": "TRAINLET_PROJECT", "value": self.project})
        return made

    def install(self) -> None:
        """Apply everything, after what a test that was killed has left."""
        self.remove()
        for one in self.objects():
            self.kubernetes.apply(one, installs.FIELD_MANAGER)

    def start_api(self) -> None:
        """Start the training API, or start it again, and reach it."""
        self._scale(1)
        self._eventually(lambda: self._available(), 300, "the training API is available")
        command = ["kubectl", "--kubeconfig", self._target.kubeconfig, "--namespace", self.namespace]
        command += ["port-forward", f"service/{_API}", f"{self._port}:8080"]
        with (self._folder / "forward.log").open("ab") as log:
            self._forward = subprocess.Popen(command, stdout=log, stderr=log)
        self._eventually(self._answers, 60, "the training API answers")

    def kill_api(self) -> None:
        """Take the training API away without notice; its volume stays."""
        self._stop_forward()
        self._scale(0)
        for pod in self.kubernetes.select(path("v1", self.namespace, "pods"), f"app.kubernetes.io/name={_API}"):
            self._end_pod(pod["metadata"]["name"], grace_s=0)

    # -- what a person with kubectl does

    def pods(self, function: str) -> list[str]:
        """Return the names of a function's pods."""
        found = self.kubernetes.select(path("v1", self.namespace, "pods"), f"{SELECTOR}={function}")
        return [one["metadata"]["name"] for one in found]

    def kill_pod(self, name: str) -> None:
        """Delete a pod without a grace: SIGKILL follows at once."""
        self._end_pod(name, grace_s=0)

    def lose_pod(self, name: str) -> NoReturn:
        """Lose the node of a pod: not with somebody's nodes."""
        self.imitates("a lost node")

    def delete_pod(self, name: str) -> None:
        """Delete a pod, as a drain of its node does."""
        self._end_pod(name, grace_s=None)

    def redeploy(self, function: str) -> None:
        """Change the template of a Service: Knative makes a new Revision."""
        annotations = {"example.com/changed": str(time.time_ns())}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        assert self.kubernetes.merge(f"{path(_SERVING, self.namespace, 'services')}/{function}", patch) is not None

    def revisions(self, function: str) -> list[str]:
        """Return the names of a function's revisions, the oldest first."""
        found = self.kubernetes.select(path(_SERVING, self.namespace, "revisions"), f"{SELECTOR}={function}")
        return sorted(one["metadata"]["name"] for one in found)

    def floor(self, function: str) -> int:
        """Return the floor of the newest Revision."""
        at = f"{path(_SERVING, self.namespace, 'revisions')}/{self.revisions(function)[-1]}"
        return self._annotation(at, MIN_SCALE)

    def cold_start(self, name: str) -> float:
        """Return how long a pod took from being created to being ready."""
        found = self.kubernetes.get(f"{path('v1', self.namespace, 'pods')}/{name}")
        assert found is not None
        ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
        marks = (found["metadata"]["creationTimestamp"], ready["lastTransitionTime"])
        created, there = (datetime.fromisoformat(mark) for mark in marks)
        return (there - created).total_seconds() + 1.0  # Kubernetes rounds to whole seconds

    def pinned(self, name: str) -> bool:
        """Say whether a pod is expensive to delete."""
        return self._annotation(f"{path('v1', self.namespace, 'pods')}/{name}", DELETION_COST) > 0

    def look_at_holds(self, name: str) -> None:
        """Nobody can look into a real queue-proxy."""

    def imitates(self, what: str) -> NoReturn:
        """Skip a test that needs what only an imitation can do."""
        pytest.skip(f"a real cluster does not offer {what}")

    def seconds(self, cluster_s: float) -> float:
        """Return how long something takes here that takes `cluster_s` on a cluster."""
        return cluster_s

    def let_pass(self, cluster_s: float) -> None:
        """Let time pass that nothing ends."""
        time.sleep(cluster_s)

    def remove(self) -> None:
        """Remove everything of these tests from the namespace, and wait until it is gone."""
        self._stop_forward()
        if self.kubernetes.get(f"{path('apps/v1', self.namespace, 'deployments')}/{_API}") is not None:
            self._scale(0)  # or it would put its functions' objects back
        for version, plural in _FUNCTIONS:
            for one in self.kubernetes.select(path(version, self.namespace, plural), SELECTOR):
                self.kubernetes.delete(f"{path(version, self.namespace, plural)}/{one['metadata']['name']}")
        left = [path_of(one) for one in reversed(self.objects())]
        for at in left:
            self.kubernetes.delete(at)
        self._eventually(lambda: not any(self.kubernetes.get(at) for at in left), 120, "everything is removed")
        pods = path("v1", self.namespace, "pods")
        for one in self.kubernetes.select(pods, SELECTOR):
            self._end_pod(one["metadata"]["name"], grace_s=0)

    def close(self) -> None:
        """Leave nothing behind."""
        self.remove()
        self.kubernetes.close()

    # --

    def _scale(self, replicas: int) -> None:
        at = f"{path('apps/v1', self.namespace, 'deployments')}/{_API}"
        self.kubernetes.merge(at, {"spec": {"replicas": replicas}})

    def _available(self) -> bool:
        found = self.kubernetes.get(f"{path('apps/v1', self.namespace, 'deployments')}/{_API}") or {}
        return bool(found.get("status", {}).get("availableReplicas"))

    def _answers(self) -> bool:
        assert self._forward is None or self._forward.poll() is None, (self._folder / "forward.log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", timeout=2.0, trust_env=False).status_code == 200
        return False

    def _stop_forward(self) -> None:
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()
            self._forward = None

    def _end_pod(self, name: str, *, grace_s: int | None) -> None:
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        at = f"{path('v1', self.namespace, 'pods')}/{name}"
        self.kubernetes._call("DELETE", at, body=body, content_type="application/json", missing_ok=True)

    def _annotation(self, at: str, name: str) -> int:
        found = self.kubernetes.get(at) or {"metadata": {}}
        return int(found["metadata"].get("annotations", {}).get(name, 0))

    def _eventually(self, look: Callable[[], object], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not look():
            assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
            time.sleep(0.2)


def opened(target: Target, folder: Path, **settings: Any) -> RealCluster:
    """Return a cluster with the training API in it."""
    from kubernetes import config

    kubernetes = Kubernetes(config.new_client_from_config(config_file=target.kubeconfig))
    found = RealCluster(kubernetes, target, folder, **settings)
    os.environ.update(target.store_environment)
    found.install()
    try:
        found.start_api()
    except BaseException:
        found.close()
        raise
    return found
