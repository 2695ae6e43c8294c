"""`trainlet deploy` says what it changes and changes nothing twice; `trainlet token create` is for admins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(150), pytest.mark.xdist_group("cli")]

STEP = """
import trainlet as tl


@tl.step(gpu="A100", name="deployed", retries={retries})
def train(lr: float) -> float:
    return lr * {factor}
"""


def test_a_deploy_says_what_changes_and_a_second_one_changes_nothing(trainlet: Any, tmp_path: Path) -> None:
    file = tmp_path / "steps_to_deploy.py"
    file.write_text(STEP.format(retries=0, factor=2))
    dry = trainlet("deploy", "steps_to_deploy.py", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert dry.stdout.startswith("deployed: new, version ")
    assert trainlet("deploy", "steps_to_deploy.py", "--dry-run").stdout == dry.stdout, "a dry run registers nothing"
    first = trainlet("deploy", "steps_to_deploy.py")
    assert first.stdout.splitlines()[-1] == "deployed: ready"
    assert trainlet("deploy", "steps_to_deploy.py").stdout == "deployed: unchanged\ndeployed: ready\n"
    file.write_text(STEP.format(retries=3, factor=3))
    changed = trainlet("deploy", "steps_to_deploy.py").stdout
    assert "deployed: code changed" in changed
    assert "'times': 0" in changed and "'times': 3" in changed
    shown = json.loads(trainlet("functions", "--json").stdout)
    assert [one["spec"]["retries"]["times"] for one in shown if one["name"] == "deployed"] == [3]


def test_a_token_for_another_project_is_printed_alone(trainlet: Any) -> None:
    made = trainlet("token", "create", "--project", "vision", "--label", "ci", "--expires", "90d")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("tl_") and made.stdout.count("\n") == 1
    refused = trainlet("token", "create", "--project", "Not A Label", "--label", "ci")
    assert refused.returncode == 2
    assert "project" in refused.stderr
