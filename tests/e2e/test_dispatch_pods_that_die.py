"""A dispatch pod, its twin, the worker and the API are killed, cut off and told to end; the work is done once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.client import connect
from trainlet.core.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "kubeflow"))
from kfp_launcher import Launcher

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("children")]


class Task:
    """One GPU task of one KFP run, whose pods a test starts and ends as it likes."""

    def __init__(self, home: Any, pipeline: Any, name: str, values: dict[str, Any], root: Path) -> None:
        path = pipeline.compile(root / "pipeline.yaml", register=True)
        url, token = home.address()
        environment = {"TRAINLET_API": url, "TRAINLET_HOME": str(root / "pod"), "TRAINLET_DISPATCHER_LEASE_S": "4"}
        self.launcher = Launcher(path, root / "root", environment, {"trainlet-token": {"token": token}})
        component = self.launcher.spec["components"][f"comp-{name}"]
        self.label = component["executorLabel"]
        self.folder = root / "root" / "run" / name / "uuid"
        self.folder.mkdir(parents=True)
        self.input = self.launcher.executor_input(component, values, {}, self.folder)
        self.run_id = f"kfp-{self.launcher.run_id}"
        self.pods: list[subprocess.Popen[str]] = []

    def start(self, index: int = 0) -> subprocess.Popen[str]:
        """Start a pod; `index` is KFP_RETRY_INDEX."""
        with (self.folder / f"log-{len(self.pods)}").open("w") as log:
            pod = subprocess.Popen(
                self.launcher.command(self.label, self.input),
                env=self.launcher.pod_environment(self.label, index),
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.pods.append(pod)
        return pod

    def log(self, number: int) -> str:
        """Return what a pod has printed."""
        return (self.folder / f"log-{number}").read_text()

    def output(self) -> Any:
        """Return the encoded result that KFP was given."""
        return json.loads((self.folder / "local" / "output").read_text())

    def view(self) -> Any:
        """Return the task at the API, or None before it is there."""
        try:
            found = tl.runs.get(self.run_id).tasks
        except tl.NotFoundError:
            return None
        return found[0] if found else None


@pytest.fixture
def counting(shared: Any, faulty: Any, tmp_path: Path) -> Iterator[Callable[..., Task]]:
    """Make the task of `count`, which counts slowly, saves often and says where it began."""
    made: list[Task] = []

    def make(steps: int = 40, pace: float = 0.1, home: Any = shared) -> Task:
        values = {"steps": str(steps), "pace": pace, "path": str(tmp_path / "steps")}
        made.append(Task(home, faulty.long, "count", values, tmp_path))
        return made[-1]

    yield make
    for task in made:
        for pod in task.pods:
            pod.kill()
            pod.wait()


def saved(task: Task) -> Callable[[], Any]:
    return lambda: (task.view() or None) and task.view().checkpoints


def steps_of(tmp_path: Path) -> list[int]:
    return [int(one.split()[1]) for one in (tmp_path / "steps").read_text().splitlines()]


def test_pods_that_are_killed_lose_the_lease_and_the_retry_goes_on(counting: Any, shared: Any, tmp_path: Path) -> None:
    task = counting(steps=60)
    task.start()
    shared.eventually(saved(task))
    task.pods[0].kill()
    shared.eventually(lambda: task.view().state == "canceled")
    assert task.view().error.type == "dispatcher_lost"
    assert task.start(index=1).wait() == 0, task.log(1)
    assert task.output()["sum"] == sum(range(60)) and task.output()["began"] > 0
    assert len(steps_of(tmp_path)) <= 62, "what was saved is not done again"


def test_a_pod_that_is_told_to_end_stops_the_work_at_once_and_fails(counting: Any, shared: Any) -> None:
    task = counting(steps=600)
    pod = task.start()
    shared.eventually(saved(task))
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(timeout=10) == 143
    assert "told to end" in task.log(0)
    view = shared.eventually(lambda: task.view() if task.view().state == "canceled" else None)
    assert "the dispatch pod was told to end" in view.reason + view.error.message, "the last words have arrived"


def test_the_button_of_kfps_page_goes_on_after_a_cancel(counting: Any, shared: Any) -> None:
    task = counting(steps=40)
    pod = task.start()
    shared.eventually(saved(task))
    tl.runs.get(task.run_id).cancel("enough")
    assert pod.wait() == 1
    assert "canceled" in task.log(0) and "Retry in KFP goes on from its last checkpoint" in task.log(0)
    assert task.start(index=1).wait() == 1, "an automatic retry of KFP must not undo a cancel"
    assert task.start(index=0).wait() == 0, task.log(2)
    assert task.output() == {"sum": sum(range(40)), "began": task.output()["began"], "attempt": 2}
    assert tl.runs.get(task.run_id).state == "succeeded"


def test_a_twin_pod_attaches_and_both_give_the_same_result(counting: Any, shared: Any) -> None:
    task = counting(steps=15)
    first = task.start()
    shared.eventually(lambda: task.view() is not None)
    second = task.start()
    assert (first.wait(), second.wait()) == (0, 0), task.log(0) + task.log(1)
    assert len(tl.runs.get(task.run_id).tasks) == 1 and len(task.view().attempts) == 1

    def printed(number: int) -> list[str]:
        return [one for one in task.log(number).splitlines() if one.startswith("step ")]

    assert printed(0) == printed(1) == [f"step {n}" for n in range(15)]


def test_a_worker_that_is_lost_costs_an_attempt_and_not_the_task(counting: Any, shared: Any) -> None:
    task = counting(steps=40)
    pod = task.start()
    shared.eventually(saved(task))
    os.kill(shared.worker_pid(task.view().attempts[0].worker), signal.SIGKILL)
    assert pod.wait() == 0, task.log(0)
    assert task.output()["attempt"] == 2 and task.output()["began"] > 0
    assert "trainlet: attempt 2" in task.log(0)


def test_an_api_that_is_killed_and_comes_back_is_waited_for(counting: Any, alone: Any) -> None:
    tl.runs.list()  # starts the platform
    task = counting(steps=40, home=alone)
    pod = task.start()
    alone.eventually(saved(task))
    alone.kill_platform()
    alone.eventually(lambda: "the training API is away" in task.log(0))
    tl.runs.list()  # starts it again, where it was
    assert pod.wait() == 0, task.log(0)
    assert task.output()["sum"] == sum(range(40))
    lines = [one for one in task.log(0).splitlines() if one.startswith("step ")]
    assert lines == [f"step {n}" for n in range(40)]


def test_a_task_that_waits_says_why_and_a_cancel_of_the_run_ends_it(
    counting: Any, shared: Any, faulty: Any, tmp_path: Path
) -> None:
    blocker = faulty.count.with_options(gpu="A100:4", name="blocks").spawn(600, 0.1)
    shared.eventually(lambda: blocker.tasks and blocker.tasks[0].state == "running")
    task = counting(steps=1)
    pod = task.start()
    shared.eventually(lambda: "trainlet: queued" in task.log(0))
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(timeout=10) == 143
    shared.eventually(lambda: task.view().state == "canceled")
    assert not (tmp_path / "steps").exists(), "it never ran"
    blocker.cancel()
    told = next(one for one in task.log(0).splitlines() if one.startswith("trainlet: queued"))
    assert "A100-80GB" in told or "GPU" in told


def test_an_api_that_is_not_there_is_a_transport_error(counting: Any) -> None:
    task = counting()
    task.launcher.environment["TRAINLET_API"] = "http://127.0.0.1:9"
    assert task.start().wait() == 75
    assert "does not answer" in task.log(0)


def test_limits_written_in_kfp_apply_to_the_work(counting: Any) -> None:
    task = counting(steps=1)
    limits = {"nvidia.com/gpu": "2", "example.com/fpga": "1"}
    config = {"resources": {"limits": limits}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
    task.input["inputs"]["parameterValues"]["task_config"] = config
    assert task.start().wait() == 0, task.log(0)
    assert len(task.view().attempts[0].devices) == 2
    assert "not applied to the GPU work: limit example.com/fpga=1" in task.log(0)
    function = connect(Settings.from_environment()).get_function(task.view().function)
    assert function.spec.nodes is not None
    assert [one.key for one in function.spec.nodes.tolerations] == ["spot"]
