"""The contract with Knative, on two targets: the imitation, and a real cluster where TRAINLET_TEST_KUBECONFIG names one."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from imitation.clusters import ImitationCluster
from real.clusters import RealCluster, Target, opened

from trainlet import registration
from trainlet.client.http import Client
from trainlet.client.triggers import Triggers
from trainlet.core import wire
from trainlet.core.settings import Settings
from trainlet.core.triggers import EventView
from trainlet.sessions import Session

EVENT = {
    "ce-specversion": "1.0",
    "ce-type": "com.example.created",
    "ce-source": "s3://digits-raw",
    "content-type": "application/json",
}

CODE = Path(__file__).parent / "code"


class Training:
    """What a person does with a training API on a cluster."""

    def __init__(self, cluster: ImitationCluster | RealCluster, home: Path) -> None:
        self.cluster = cluster
        self.settings = Settings(home=home, api=cluster.url, token=cluster.token, project=cluster.project)
        self.client = Client(cluster.url, cluster.token)
        self.steps = _module()

    def deploy(self, name: str = "held") -> None:
        """Register a step and wait until the cluster knows it."""
        Session(self.settings).register({name: getattr(self.steps, name.replace("-", "_"))})
        self.eventually(lambda: (self.client.get_function(name).deployment or wire.Deployment(ready=False)).ready)

    def deploy_triggers(self) -> None:
        """Deploy a pipeline with its triggers."""
        self.deploy()
        registration.register(Session(self.settings), [self.steps.retraining])

    def events(self) -> list[EventView]:
        """Return the events that came."""
        return Triggers(self.client).events()

    def send(self, event_id: str, subject: str = "images/1.png", *, source: str | None = None, **data: Any) -> None:
        """Send an event to the broker, as a source of Knative does."""
        body = json.dumps({"seconds": 0.2, "rows": 7, **data}).encode()
        self.cluster.post_event({**EVENT, "ce-id": event_id, "ce-subject": subject}, body, source)

    def run_of(self, event_id: str) -> str:
        """Wait until an event has started a run that succeeded; returns the run."""

        def ended() -> str | None:
            matches = [match for one in self.events() if one.id == event_id for match in one.matches]
            assert len(matches) <= 1 and all(match.run_state != "failed" for match in matches), matches
            return next((match.run_id for match in matches if match.run_state == "succeeded"), None)

        return str(self.eventually(ended, what=f"{event_id} starts a run that succeeds"))

    def start(self, seconds: float, name: str = "held", **more: Any) -> str:
        """Start a task; returns its key."""
        return self.client.invoke(name, wire.Invoke(args={"seconds": seconds, **more})).key

    def start_waited_for(self, seconds: float, dispatcher: wire.DispatcherLease, name: str = "held") -> str:
        """Start a task for somebody whose lease says that they wait; returns its key."""
        key = f"{dispatcher.id}.{name}"
        digest = self.client.get_function(name).digest
        args = {"seconds": seconds}
        body = wire.TaskCreate(
            run_id=dispatcher.id, node=name, function=name, digest=digest, args=args, dispatcher=dispatcher
        )
        return self.client.put_task(key, body).key

    def latencies(self, keys: list[str]) -> list[float]:
        """Return, for running tasks, the seconds from their creation to their claim."""
        views = [self.client.get_task(key) for key in keys]
        marks = [(view.created_at, view.attempts[-1].claimed_at) for view in views]
        moments = [[datetime.fromisoformat(mark) for mark in pair] for pair in marks]
        return [(claimed - created).total_seconds() for created, claimed in moments]

    def state(self, key: str) -> str:
        return self.client.get_task(key).state

    def wait(self, key: str, state: str = "succeeded", timeout_s: float = 60.0) -> wire.TaskView:
        """Wait until a task is in a state; fail when it can never be."""

        def there() -> wire.TaskView | None:
            view = self.client.get_task(key)
            over = view.state in wire.TERMINAL and view.state != state
            assert not over, f"{key} is {view.state}: {view.reason} {view.error}"
            return view if view.state == state else None

        found: wire.TaskView = self.eventually(there, timeout_s, what=f"{key} {state}")
        return found

    def result(self, key: str, timeout_s: float = 60.0) -> Any:
        """Wait for the result of a task."""
        return self.wait(key, timeout_s=timeout_s).output

    def pod_of(self, key: str) -> str:
        """Return the pod that a task runs on."""
        return self.wait(key, "running").attempts[-1].worker.partition(".")[2]

    def eventually(self, look: Callable[[], Any], timeout_s: float = 60.0, what: str = "it") -> Any:
        """Look again until there is something."""
        deadline = time.monotonic() + timeout_s * self.cluster.patience
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:g} s"
            time.sleep(0.05)
        return found


def _module() -> Any:
    sys.path.insert(0, str(CODE))
    try:
        return importlib.import_module("held")
    finally:
        sys.path.remove(str(CODE))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ImitationCluster | RealCluster]:
    """A cluster of this test's own; a test's parameters are its settings."""
    settings = getattr(request, "param", {})
    target = Target.from_environment(os.environ)
    found = ImitationCluster(tmp_path, **settings) if target is None else opened(target, tmp_path, **settings)
    yield found
    found.close()


@pytest.fixture
def training(cluster: ImitationCluster | RealCluster, tmp_path: Path) -> Training:
    """A person's way to the training API of the cluster."""
    return Training(cluster, tmp_path / "person")
