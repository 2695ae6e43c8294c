"""A pipeline is registered, compiled and started on a KFP server with one call or one command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainlet as tl
from trainlet.client import connect
from trainlet.core.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "kubeflow"))
from fake_kfp import FakeKfp

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("children")]
CODE = Path(__file__).parent / "code"


@pytest.fixture
def kfp() -> Iterator[FakeKfp]:
    made = FakeKfp()
    yield made
    made.close()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [str(Path(sys.executable).with_name("trainlet")), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_submitting_makes_the_code_known_and_starts_a_run_with_its_parameters(
    shared: Any, faulty: Any, kfp: FakeKfp
) -> None:
    run = faulty.long.submit(
        kfp.host, experiment="tests", steps=7, pace=1, target={"api": "https://api"}, caching=False
    )
    body = kfp.runs[run.id]
    assert body.runtime_config.parameters == {"steps": 7, "pace": 1}
    assert kfp.experiments[body.experiment_id].display_name == "tests"
    assert body.display_name.startswith("long 20")
    tasks = body.pipeline_spec["pipeline_spec"]["root"]["dag"]["tasks"]
    assert all("enableCache" not in one["cachingOptions"] for one in tasks.values())
    secrets = body.pipeline_spec["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert secrets["exec-count"]["secretAsEnv"][0]["secretName"] == "trainlet-token"
    known = {view.name: view.digest for view in connect(Settings.from_environment()).list_functions()}
    assert known["faulty-count"] in str(body.pipeline_spec)
    assert shared.address()[1] not in str(body.pipeline_spec), "no secret is in a compiled pipeline"


def test_a_parameter_that_is_not_what_the_pipeline_takes_is_refused_before_anything_is_sent(
    shared: Any, faulty: Any, kfp: FakeKfp
) -> None:
    with pytest.raises(tl.UserError, match=r"has no parameter 'stepps'\. Did you mean 'steps'"):
        faulty.long.submit(kfp.host, stepps=7)
    with pytest.raises(tl.UserError, match=r"steps=.* is no JSON"):
        faulty.long.submit(kfp.host, steps=object())
    assert kfp.runs == {}


def test_the_command_submits_waits_and_tells_by_its_exit_code(shared: Any, kfp: FakeKfp) -> None:
    target = f"{CODE / 'faulty.py'}:long"
    done = command("submit", target, "--host", kfp.host, "-p", "steps=3")
    assert done.returncode == 0, done.stderr
    (run_id,) = kfp.runs
    assert done.stdout.split() == ["run", run_id, f"{kfp.host}/#/runs/details/{run_id}"]
    listed = command("runs", "--kubeflow", kfp.host)
    assert run_id in listed.stdout and "KFP" in listed.stdout
    others = command("runs", "--kubeflow", kfp.host, "--namespace", "somebody-else")
    assert others.returncode == 0 and run_id not in others.stdout
    refused = command("submit", target, "--host", "kubeflow.example")
    assert (refused.returncode, "is no URL" in refused.stderr) == (2, True)


def test_the_check_needs_no_server_and_shows_what_is_shipped(shared: Any) -> None:
    done = command("check", f"{CODE / 'faulty.py'}:long")
    assert done.returncode == 0, done.stderr
    assert "faulty.py" in done.stdout and "waits for the training API" in done.stdout
    assert "of 1,048,576" in done.stdout
