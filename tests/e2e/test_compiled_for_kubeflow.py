"""A compiled step's dispatch task, started as KFP's launcher would, does its work on the training API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainlet as tl
from trainlet.core.settings import Settings

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("children")]


def container(compiled: Path, name: str) -> list[str]:
    """Return the --step argument of a component in the compiled pipeline."""
    document = next(yaml.safe_load_all(compiled.read_text()))
    executor = document["deploymentSpec"]["executors"][f"exec-{name}"]
    assert executor["container"]["command"] == ["python", "-m", "trainlet_pipelines.dispatch"]
    return list(executor["container"]["args"])


def dispatch(arguments: list[str], root: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the dispatch task with an executor input as the launcher writes it."""
    executor_input = {
        "inputs": {"parameterValues": values},
        "outputs": {
            "outputFile": str(root / "executor_output.json"),
            "parameters": {"output": {"outputFile": str(root / "output")}},
        },
    }
    filled = [json.dumps(executor_input) if one == "{{$}}" else one for one in arguments]
    return subprocess.run(
        [sys.executable, "-m", "trainlet_pipelines.dispatch", *filled],
        env={**os.environ, "KFP_RUN_ID": root.name},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def compiled(shared: Any, faulty: Any, tmp_path: Path) -> Path:
    faulty.sums.compile(tmp_path / "sums.yaml")
    from trainlet import runs

    runs._session(Settings.from_environment()).register({faulty.add.name: faulty.add})
    return tmp_path / "sums.yaml"


def test_a_dispatched_step_gives_its_result_and_attaches_when_started_again(compiled: Path, tmp_path: Path) -> None:
    arguments = container(compiled, "add")
    first = dispatch(arguments, tmp_path / "run-a", {"in_0": 4.0})
    assert first.returncode == 0, first.stderr
    assert json.loads((tmp_path / "run-a" / "output").read_text()) == 5
    assert "trainlet task kfp-" in first.stdout
    again = dispatch(arguments, tmp_path / "run-a", {"in_0": 4.0})
    assert again.returncode == 0
    assert len(tl.runs.get("kfp-run-a").tasks) == 1


def test_a_step_reads_what_an_earlier_one_wrote(compiled: Path, tmp_path: Path) -> None:
    document = next(yaml.safe_load_all(compiled.read_text()))
    last = max(document["deploymentSpec"]["executors"])
    done = dispatch(container(compiled, last.removeprefix("exec-")), tmp_path / "run-b", {"in_0": "5", "in_1": "11"})
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run-b" / "output").read_text()) == 16


def test_an_api_that_is_away_is_a_transport_error(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINLET_API", "http://127.0.0.1:9")
    done = dispatch(container(compiled, "add"), tmp_path / "run-c", {"in_0": 4.0})
    assert done.returncode == 75
    assert "does not answer" in done.stderr
