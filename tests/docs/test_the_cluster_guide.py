"""What docs/knative.md tells an admin to type exists, and the files that it shows are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from trainlet import cli
from trainlet.cli import clusters, deployment, doctor, execution, listing
from trainlet_knative import installs
from trainlet_knative.clusters import Cluster

TEXT = (Path(__file__).parents[2] / "docs" / "knative.md").read_text()
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
INLINE = [" ".join(one.split()) for one in re.findall(r"`(trainlet [^`]+)`", TEXT)]
COMMANDS = [line.strip() for line in re.findall(r"(?m)(?:^|&& )(trainlet [^&\n]+)", SHELL)] + INLINE


def test_it_is_ten_commands() -> None:
    first = TEXT.partition("## Ten commands")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", first, re.DOTALL)
    assert sum(len(block.splitlines()) for block in blocks) == 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command: str) -> None:
    modules = (execution, listing, doctor, clusters, deployment)
    known = {one.name: one for module in modules for one in module.COMMANDS}
    _, name, *arguments = shlex.split(command)
    if name == "token":
        known, name, arguments = known["token"].commands, arguments[0], arguments[1:]
    if name == "manifests":
        arguments = [one for one in arguments if one not in ("--signing-key", "signing.key")]  # no such file here
    with click.Context(cli.cli):
        known[name].make_context(name, arguments, resilient_parsing=not arguments)


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
