"""Commands for a cluster's admin and for GitOps: `manifests` and `install` print or apply Kubernetes objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
def manifests(target: str, cluster_file: Path | None, project: str | None) -> None:
    """Print the Kubernetes objects of a file's steps as YAML, as the training API would apply them."""
    from trainlet_knative import objects

    cluster = objects.Cluster.load(found_cluster(cluster_file))
    if not cluster.public_key:
        raise UserError(
            "The cluster's settings have no public_key, without which a worker trusts no event. Copy it from the training "
            "API's signing key: docs/knative.md shows how."
        )
    project = project or Settings.from_environment().project
    made = [
        one for step in loading.steps(target).values() for one in objects.all_objects(cluster, project, step.spec())
    ]
    click.echo(as_yaml(made), nl=False)


def found_cluster(given: Path | None) -> Path:
    """Return the file of the cluster's settings; UserError when there is none."""
    path = given or Path("cluster.yaml")
    if not path.is_file():
        raise UserError(f"There is no file {str(path)!r} with the cluster's settings. Pass --cluster FILE.")
    return path


def as_yaml(made: list[dict[str, Any]]) -> str:
    """Write objects as one YAML stream."""
    import yaml

    return "---\n" + yaml.safe_dump_all(made, sort_keys=False, width=120)


COMMANDS = (manifests,)
