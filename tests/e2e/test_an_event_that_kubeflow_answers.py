"""An event starts a run of Kubeflow Pipelines through the real platform, and what its pod has done here is on its trail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlet.client import connect
from trainlet.client.triggers import Triggers
from trainlet.core import wire
from trainlet.core.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "kubeflow"))
from fake_kfp import FakeKfp

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("children")]
FLOW = """
import trainlet as tl


@tl.step(gpu="T4")
def train(data: str) -> int:
    return len(data)


@tl.on_event(
    "com.example.created",
    params={"data": "$.data.uri"},
    kubeflow={"pipeline": "digits", "experiment": "nightly"},
    budget="5 USD/day",
    name="on-data",
)
@tl.pipeline
def retrain(data: str) -> int:
    return train(data)
"""
SPEC = {
    "pipelineInfo": {"name": "digits"},
    "root": {"dag": {"tasks": {}}, "inputDefinitions": {"parameters": {"data": {"parameterType": "STRING"}}}},
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.17.3",
}
EVENT = {"id": "made", "source": "/data", "type": "com.example.created", "data": {"uri": "s3://raw/1"}}


@pytest.fixture
def kfp(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKfp]:
    made = FakeKfp()
    made.versions = {("digits", "v1"): SPEC}
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", made.host)
    yield made
    made.close()


def command(folder: Path, *arguments: str) -> str:
    line = [str(Path(sys.executable).with_name("trainlet")), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_run_there_is_started_once_and_what_its_pod_used_is_on_the_trail(
    kfp: FakeKfp, alone: Any, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "event.json").write_text(json.dumps(EVENT))
    command(tmp_path, "deploy", "flow.py")
    for _ in range(2):
        command(tmp_path, "events", "send", "event.json")
    client = connect(Settings.from_environment())
    alone.eventually(lambda: kfp.runs, 90)
    ((there, body),) = kfp.runs.items()
    ours = body.display_name
    assert body.runtime_config.parameters == {"data": "s3://raw/1"}
    part = f"kfp-{there}"
    alone.eventually(lambda: client.get_run(ours).labels.get("trainlet.dev/kubeflow-run") == part, 60)

    client.put_run(part, wire.RunCreate(pipeline="digits", labels={"kfp.run": there}))  # now a pod, as it does it
    (known,) = client.list_functions()
    task = {"run_id": part, "node": "train", "function": known.name, "digest": known.digest, "args": {"data": "abc"}}
    client.put_task(f"{part}.train", wire.TaskCreate.model_validate(task))
    alone.eventually(lambda: client.get_run(part).state == "succeeded", 90)
    kfp.move(there, "SUCCEEDED")
    alone.eventually(lambda: client.get_run(ours).state == "succeeded", 60)

    assert client.get_run(part).budget_nano == 5 * 10**9
    shown = command(tmp_path, "events", "show", "made")
    assert f"run {ours} succeeded" in shown and f"{part}, which the pods of Kubeflow Pipelines" in shown
    assert "train succeeded" in shown and max(map(float, re.findall(r"cost ([\d.]+)", shown))) > 0
    alone.eventually(lambda: (Triggers(client).get("event", "on-data").spent_nano or 0) > 0, 30)
    assert len(kfp.runs) == 1
