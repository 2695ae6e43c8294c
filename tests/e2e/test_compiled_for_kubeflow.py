"""Compiled pipelines, walked task by task as KFP's driver and launcher do, against a live training API."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kfp import compiler, dsl

import trainlet as tl

sys.path.insert(0, str(Path(__file__).parents[1] / "kubeflow"))
from kfp_launcher import Launcher, TaskFailed

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("children")]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def launcher(shared: Any, tmp_path: Path) -> Callable[[Any], Launcher]:
    """Compile a pipeline, make its code known, and return a run of it that is still to start."""

    def made(pipeline: Any, **target: Any) -> Launcher:
        path = pipeline.compile(tmp_path / f"{pipeline.name}.yaml", target, register=True)
        url, token = shared.address()
        environment = {"TRAINLET_API": url, "TRAINLET_HOME": str(tmp_path / "pod"), "TRAINLET_DISPATCHER_LEASE_S": "4"}
        return Launcher(path, tmp_path / "root", environment, {"trainlet-token": {"token": token}})

    return made


def test_the_digits_pipeline_gives_the_accuracy_it_has_locally(launcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    digits = importlib.import_module("digits").digits
    run = launcher(digits)
    run.run(epochs=3, pace=0.0)
    assert float(run.outputs["evaluate"]["output"]) == digits.local(epochs=3, pace=0.0)
    train = next(pod for pod in run.pods if pod.task == "train")
    first, *_, last = train.stdout.splitlines()
    assert f"/runs/kfp-{run.run_id} task kfp-" in first and "GPU-seconds" in last
    lines = [line for line in train.stdout.splitlines() if line.startswith("epoch ")]
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]


def test_the_page_of_a_gpu_step_shows_numbers_links_and_a_curve(launcher: Any, faulty: Any) -> None:
    run = launcher(faulty.long)
    run.run(steps=3, pace=0.0)
    shown = run.artifacts["count"]
    assert {"gpu_seconds", "cost", "attempts", "queue_seconds"} <= set(shown["metrics"]["metadata"])
    report = Path(shown["report"]["uri"]).read_text()
    assert "](http://127.0.0.1:" in report and "## Timeline" in report
    assert Path(shown["curve"]["uri"]).read_text().startswith("<!doctype html>")
    assert tl.runs.get(f"kfp-{run.run_id}").state == "succeeded"


def test_a_run_of_kfp_is_shown_under_the_name_of_its_pipeline(launcher: Any, faulty: Any) -> None:
    run = launcher(faulty.long)
    run.run(steps=1, pace=0.0)
    view = tl.runs.get(f"kfp-{run.run_id}").view
    assert (view.pipeline, view.labels) == ("long", {"kfp.run": run.run_id})


def test_a_step_that_fails_fails_once_and_says_why_last(launcher: Any, faulty: Any) -> None:
    run = launcher(faulty.breaks)
    with pytest.raises(TaskFailed):
        run.run()
    pods = [pod for pod in run.pods if pod.task == "gpu-fails"]
    assert [pod.code for pod in pods] == [1, 1, 1]
    assert "ValueError: no luck" in pods[0].stdout and "trainlet: gpu-fails failed at faulty.py" in pods[0].stdout
    assert len(tl.runs.get(f"kfp-{run.run_id}").tasks[0].attempts) == 1, "KFP's retries repeat no user code"


def test_steps_in_somebodys_own_pipeline_share_one_run(launcher: Any, faulty: Any, shared: Any, tmp_path: Path) -> None:
    faulty.tiny.register()
    tiny, where = faulty.tiny.as_component(), faulty.where.as_component()
    faulty.where.register()

    @dsl.pipeline(name="own")
    def own():  # kfp reads no annotations that are strings
        doubled = tiny(value=tiny(value=3).outputs["output"])
        where().after(doubled)

    run = launcher(faulty.long)
    compiler.Compiler().compile(own, str(tmp_path / "own.yaml"))
    run = Launcher(tmp_path / "own.yaml", tmp_path / "own", run.environment, run.secrets)
    run.run()
    assert run.outputs["tiny-2"]["output"] == 12.0
    view = tl.runs.get(f"kfp-{run.run_id}").view
    assert (view.pipeline, view.state, sum(view.task_counts.values())) == ("own", "succeeded", 3)
