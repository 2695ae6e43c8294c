"""Commands about Kubeflow Pipelines: `compile`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainlet.cli import loading
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings
from trainlet.pipelines import Pipeline

_TARGET = (
    click.option("--api", help="The training API as the pods reach it (default: TRAINLET_API)."),
    click.option("--image", help="The image of the pods that wait for GPU steps."),
    click.option("--step-image", help="The image of CPU steps that name none."),
    click.option("--token-secret", help="The Secret with the API's token."),
    click.option("--store-secret", help="The Secret with the keys of the S3 store."),
)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where a compiled pipeline runs."""
    for option in reversed(_TARGET):
        command = option(command)
    return command


def target_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a target from the options that were given."""
    given = {name: value for name, value in options.items() if value is not None}
    api = Settings.from_environment().api
    return given if "api" in given or api is None else {**given, "api": api}


def pipeline_of(target: str) -> Pipeline[Any, Any]:
    """Return the pipeline that a person named; a single step is not one."""
    found = loading.load(target)
    if not isinstance(found, Pipeline):
        raise UserError(f"{target} is a step; only a @tl.pipeline compiles. In KFP use step.as_component().")
    return found


@click.command("compile")
@click.argument("target", metavar="FILE[:PIPELINE]")
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), required=True, help="YAML file to write.")
@click.option("--register", is_flag=True, help="Also make its functions and code known to the training API.")
@click.option("--manifest", is_flag=True, help="Write Kubernetes objects (Pipeline, PipelineVersion).")
@target_options
def compile_(target: str, out: Path, register: bool, manifest: bool, **options: Any) -> None:
    """Compile a pipeline to Kubeflow Pipelines."""
    pipeline_of(target).compile(out, target_of(options), register=register, manifest=manifest)
    click.echo(f"wrote {out}")


COMMANDS = (compile_,)
