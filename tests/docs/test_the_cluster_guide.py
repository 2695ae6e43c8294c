"""What docs/knative.md tells an admin to type exists, and the files that it shows are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from tests.docs import commands

from trainlet import cli
from trainlet_functions import processes
from trainlet_knative import installs
from trainlet_knative.clusters import Cluster

OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
TEXT = (Path(__file__).parents[2] / "docs" / "knative.md").read_text()
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
INLINE = [" ".join(one.split()) for one in re.findall(r"`(trainlet [^`]+)`", TEXT)]
COMMANDS = [line.strip() for line in re.findall(r"(?m)(?:^|&& )(trainlet [^&\n]+)", SHELL)] + INLINE
COMMANDS += [" ".join(one.split()) for one in re.findall(r"`(trainlet [^`]+)`", OPERATIONS)]


def test_it_is_ten_commands() -> None:
    first = TEXT.partition("## Ten commands")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", first, re.DOTALL)
    assert sum(len(block.splitlines()) for block in blocks) == 10


@pytest.mark.parametrize("command", list(dict.fromkeys(COMMANDS)))
def test_a_command_and_its_options_exist(command: str) -> None:
    found, name, arguments = commands.named(command)
    if isinstance(found, click.Group):
        found, name, arguments = found.commands[arguments[0]], arguments[0], arguments[1:]
    if name == "manifests":
        arguments = [one for one in arguments if one not in ("--signing-key", "signing.key")]  # no such file here
    with click.Context(cli.cli):
        found.make_context(name, arguments, resilient_parsing=not arguments)


def test_the_settings_and_the_catalogue_are_right(tmp_path: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    cluster = Cluster.load(tmp_path / "cluster.yaml")
    assert cluster.gpus.placement("H100-80GB").runtime_class == "nvidia"
    assert cluster.gpus.placement("H100-80GB/1g.10gb").resource == "nvidia.com/mig-1g.10gb"


def test_the_secrets_are_those_that_the_deployment_wants() -> None:
    lines = [line for line in SHELL.splitlines() if "create secret generic trainlet-api" in line]
    assert lines == [installs.secret_command(["database-url"])]
    deployment = yaml.safe_load((installs.FOLDER / "base" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (
        container["envFrom"][0]["secretRef"]["name"]
        == Cluster.load(installs.FOLDER / "base" / "cluster.yaml").store_secret
    )
    assert "create secret generic trainlet-store" in SHELL


def test_what_operations_names_exists() -> None:
    """The targets of make, and the metrics, by the names that `/metrics` gives them."""
    root = Path(__file__).parents[2]
    targets = re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)`", OPERATIONS)) <= set(targets)
    rooms = (root / "functions" / "trainlet_functions").rglob("*.py")
    source = "\n".join(path.read_text() for path in rooms)
    named = {
        re.sub(r"_(count|bucket|sum|total)$", "", one) for one in re.findall(r"\b(trainlet_[a-z_]+)\b", OPERATIONS)
    }
    packages = {"trainlet_knative"}
    assert [one for one in sorted(named - packages) if f'"{one}"' not in source] == []


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    processes.kill_marked("TRAINLET_HOME", str(tmp_path / "home"))


def test_the_step_that_is_shown_runs_and_is_metered(tmp_path: Path, home: Path) -> None:
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if one.startswith("# train.py"))
    (tmp_path / "train.py").write_text(block)
    environment = {**os.environ, "TRAINLET_HOME": str(home), "TRAINLET_VIRTUAL_GPUS": "1"}

    def trainlet(*arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("trainlet")), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "step 2: loss 0.970" in trainlet("run", "train.py", "-p", "steps=3", "-p", "pause_s=0.5")
    assert "A100-80GB" in trainlet("usage")
