"""Commands about Kubeflow Pipelines: `compile`, `check`, `submit`."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainlet.cli import costs, loading, output
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings
from trainlet.pipelines import Pipeline
from trainlet.steps import Step

_TARGET = (
    click.option("--api", help="The training API as the pods reach it (default: TRAINLET_API)."),
    click.option("--dashboard", help="The training API as people reach it, for links."),
    click.option("--image", help="The image of the pods that wait for GPU steps."),
    click.option("--step-image", help="The image of CPU steps that name none."),
    click.option("--token-secret", help="The Secret with the API's token."),
    click.option(
        "--pod-token",
        is_flag=True,
        default=None,
        help="Let each pod use its own service account's token (a PodDefault).",
    ),
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


@click.command()
@click.argument("target", metavar="FILE[:PIPELINE]")
@click.option("--host", envvar="KF_PIPELINES_ENDPOINT", help="The KFP server (default: KF_PIPELINES_ENDPOINT).")
@click.option("--experiment", help="The experiment (default: Default).")
@click.option("--namespace", "-n", help="The profile's namespace of a multi-user KFP.")
@click.option("--token", envvar="KF_PIPELINES_TOKEN", help="A bearer token (default: KF_PIPELINES_TOKEN).")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; JSON or text.")
@click.option("--no-cache", is_flag=True, help="Let KFP do every task, whatever it has done before.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code says how it went.")
@target_options
def submit(
    target: str,
    host: str | None,
    experiment: str | None,
    namespace: str | None,
    token: str | None,
    params: tuple[str, ...],
    no_cache: bool,
    wait: bool,
    **options: Any,
) -> None:
    """Start a pipeline on a Kubeflow Pipelines server."""
    found = pipeline_of(target)
    values = loading.parameters(params, found)
    run = found.submit(
        host,
        experiment=experiment,
        namespace=namespace,
        token=token,
        target=target_of(options),
        caching=False if no_cache else None,
        **values,
    )
    click.echo(f"run {run.id}\n{run.url}")
    if wait:
        run.wait()
        click.echo("succeeded")


@click.command()
@click.argument("target", metavar="FILE[:PIPELINE]")
@output.json_option
def check(target: str, as_json: bool) -> int:
    """Show what a pipeline ships, how big it is beside KFP's limits, what KFP's cache will do, and what a run may cost."""
    from trainlet_pipelines.kubeflow import checks

    found = pipeline_of(target)
    with tempfile.TemporaryDirectory(prefix="trainlet-") as folder:
        report = checks.check(found.compile(Path(folder) / "pipeline.yaml", target_of({})))
    shipped = {name: step.bundle() for name, step in found.trace({}).steps.items() if isinstance(step, Step)}
    cost = costs.sentence(lambda: found.estimate())
    if as_json:
        files = {name: sorted(bundle.files) for name, bundle in shipped.items()}
        output.print_json({**dataclasses.asdict(report), "shipped": files, "cost": cost})
        return 1 if report.problems else 0
    rows = [
        [
            name,
            ", ".join(sorted(set(one.files) - {"trainlet.json"})),
            len(one.data),
            ", ".join(one.imports) or "nothing",
        ]
        for name, one in shipped.items()
    ]
    output.table("", ["function", "ships", "bytes", "not shipped, must be in the image"], rows, numeric=("bytes",))
    tasks = [
        [one.name, one.does, one.image, one.argument_bytes, "reused" if one.cached else "done every time"]
        for one in report.tasks
    ]
    output.table("", ["task", "in KFP", "image", "argument bytes", "same inputs and code"], tasks, numeric=("bytes",))
    click.echo(f"IR {report.ir_bytes:,} bytes; workflow about {report.workflow_bytes:,} of {checks.WORKFLOW_BYTES:,}")
    click.echo(f"cost: {cost}")
    for problem in report.problems:
        click.echo(f"problem: {problem}")
    return 1 if report.problems else 0


COMMANDS = (compile_, submit, check)
