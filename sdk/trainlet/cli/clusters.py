"""Commands for a cluster's admin and for GitOps: `manifests` and `install` print or apply Kubernetes objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trainlet import registration
from trainlet.cli import loading
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings

cluster_option = click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's settings (default: cluster.yaml in this folder).",
)


@click.command()
@click.argument("target", metavar="FILE[:NAME]")
@cluster_option
@click.option("--project", help="The project (default: TRAINLET_PROJECT).")
@click.option(
    "--signing-key",
    type=click.Path(dir_okay=False, path_type=Path, exists=True),
    help="The API's signing key, where the settings have no public_key; only its public half is printed.",
)
def manifests(target: str, cluster_file: Path | None, project: str | None, signing_key: Path | None) -> None:
    """Print the Kubernetes objects of a file's steps and triggers as YAML, as the training API would apply them."""
    from trainlet_knative import objects

    cluster = objects.Cluster.load(found_cluster(cluster_file))
    if signing_key is not None:
        from trainlet_functions.signatures import Signer

        cluster = cluster.model_copy(update={"public_key": Signer.load(signing_key).public_key})
    if not cluster.public_key:
        raise UserError(
            "The cluster's settings have no public_key, without which a worker trusts no event. Pass the training API's "
            "key: --signing-key signing.key"
        )
    project = project or Settings.from_environment().project
    made = [
        one for step in loading.steps(target).values() for one in objects.all_objects(cluster, project, step.spec())
    ]
    for watch in registration.watches(loading.pipelines(target)):
        made += objects.trigger_objects(cluster, project, watch)
    click.echo(as_yaml(made), nl=False)


@click.command()
@cluster_option
@click.option("--image", default="trainlet-api:0.1.0", show_default=True, help="The training API's image.")
@click.option("--project", "projects", multiple=True, help="A project to make a namespace for (default: default).")
@click.option("--overlay", default="production", show_default=True, help="Which of the packaged overlays.")
@click.option("--prices", type=click.Path(dir_okay=False, path_type=Path, exists=True), help="The price list.")
@click.option("--pod-defaults", is_flag=True, help="Also let pods of the kubeflow_namespaces use their own identity.")
@click.option("--dry-run", is_flag=True, help="Print the objects as YAML and touch nothing.")
@click.option("--settings", "settings_only", is_flag=True, help="Write cluster.yaml and gpus.yaml to start from.")
def install(
    cluster_file: Path | None,
    image: str,
    projects: tuple[str, ...],
    overlay: str,
    prices: Path | None,
    pod_defaults: bool,
    dry_run: bool,
    settings_only: bool,
) -> int:
    """Install or update the training API on the cluster that kubectl talks to."""
    from trainlet_knative import installs

    if settings_only:
        _write_new({"cluster.yaml": installs.example_settings(), "gpus.yaml": installs.example_catalogue()})
        return 0
    made = installs.objects(
        found_cluster(cluster_file),
        projects or ("default",),
        image=image,
        overlay=overlay,
        prices=None if prices is None else prices.read_text(),
        pod_defaults=pod_defaults,
    )
    if dry_run:
        click.echo(as_yaml(made), nl=False)
        return 0
    from trainlet_knative.connections import Kubernetes

    kubernetes = Kubernetes()
    for done, what in installs.apply(kubernetes, made):
        click.echo(f"{done} {what}")
    lacks = installs.missing_keys(kubernetes)
    if lacks:
        click.echo(f"The API does not start yet: its Secret lacks {', '.join(lacks)}. Make it:", err=True)
        click.echo(installs.secret_command(lacks), err=True)
    return 3 if lacks else 0


def _write_new(files: dict[str, str]) -> None:
    """Write files that are not there yet; what an admin edited is never replaced."""
    for name in files:
        if Path(name).exists():
            raise UserError(f"{name} is here already. Move it away, or go on with it.")
    for name, text in files.items():
        Path(name).write_text(text)
        click.echo(f"wrote {name}")


def found_cluster(given: Path | None) -> Path:
    """Return the file of the cluster's settings; UserError when there is none."""
    path = given or Path("cluster.yaml")
    if not path.is_file():
        raise UserError(f"There is no file {str(path)!r} with the cluster's settings. Pass --cluster FILE.")
    return path


def as_yaml(made: list[dict[str, Any]]) -> str:
    """Write objects as one YAML stream; a text of several lines, such as a file in a ConfigMap, stays readable."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, data: str) -> yaml.ScalarNode:
            return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    Dumper.add_representer(str, Dumper.represent_str)
    return "---\n" + yaml.dump_all(made, Dumper=Dumper, sort_keys=False, width=120)


COMMANDS = (manifests, install)
