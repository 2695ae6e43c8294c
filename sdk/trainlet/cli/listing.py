"""Commands that show things: `runs`, `logs`, `functions`, `completion`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.core import wire
from trainlet.core.settings import Settings
from trainlet.runs import get

if TYPE_CHECKING:
    from trainlet_pipelines.kubeflow.runs import View as KubeflowView


@click.command()
@click.option("--limit", "-n", type=click.IntRange(1, 500), default=20, show_default=True)
@click.option("--kubeflow", metavar="HOST", envvar="KF_PIPELINES_ENDPOINT", help="Also show the runs of a KFP server.")
@click.option("--namespace", help="The profile's namespace of a multi-user KFP.")
@output.json_option
def runs(limit: int, kubeflow: str | None, namespace: str | None, as_json: bool) -> None:
    """List runs, the newest first."""
    found = connect(Settings.from_environment()).list_runs(limit)
    theirs = _kubeflow_runs(kubeflow, namespace, limit) if kubeflow else []
    if as_json:
        shown = [view.model_dump(mode="json", exclude={"graph"}) for view in found]
        output.print_json([*shown, *(dataclasses.asdict(view) for view in theirs)])
        return
    if not found and not theirs:
        click.echo("Nothing has run yet. `trainlet run FILE` starts a pipeline.")
        return
    rows = [
        [
            view.id,
            view.state,
            f"{view.created_at[:10]} {output.clock(view.created_at)}",
            output.seconds_between(view.created_at, view.finished_at),
            ", ".join(f"{count} {state}" for state, count in sorted(view.task_counts.items())),
            view.reason,
        ]
        for view in found
    ]
    rows += [
        [
            view.id,
            view.state,
            f"{view.created_at[:10]} {output.clock(view.created_at)}",
            output.seconds_between(view.created_at, view.finished_at),
            ", ".join(f"{view_task.name} {view_task.state}" for view_task in view.tasks),
            f"KFP: {view.name} {view.error}".rstrip(),
        ]
        for view in theirs
    ]
    output.table("", ["run", "state", "started (UTC)", "took", "tasks", "reason"], rows, numeric=("took",))


def _kubeflow_runs(host: str, namespace: str | None, limit: int) -> Sequence[KubeflowView]:
    from trainlet_pipelines.kubeflow import runs as kubeflow_runs

    token = os.environ.get("KF_PIPELINES_TOKEN")
    return kubeflow_runs.Server(host, token=token, namespace=namespace).list(limit)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option("--task", help="Only this task.")
@output.json_option
def logs(run_id: str, follow: bool, task: str | None, as_json: bool) -> None:
    """Print the log lines of a run."""
    found = get(run_id)
    for line in found.task(task).logs(follow=follow) if task else found.logs(follow=follow):
        click.echo(line.model_dump_json() if as_json else output.log_line(line))


@click.command()
@output.json_option
def functions(as_json: bool) -> None:
    """List deployed functions with their workers."""
    found = connect(Settings.from_environment()).list_functions()
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    on_a_cluster = any(view.deployment is not None for view in found)
    rows = [
        [
            view.name,
            view.digest[:12],
            " or ".join(f"{gpu.count} x {gpu.sku}" for gpu in view.spec.resources.gpus) or "CPU",
            f"{view.workers} ({view.busy} busy)",
            f"{view.created_at[:10]} {output.clock(view.created_at)}",
            *([_pods(view), _cold_start(view), _revision(view)] if on_a_cluster else []),
        ]
        for view in found
    ]
    columns = ["function", "version", "device", "workers", "registered (UTC)"]
    output.table("", columns + (["pods", "last cold start", "revision"] if on_a_cluster else []), rows)


def _pods(view: wire.FunctionView) -> str:
    """Say how many pods there are, and how many of them are warm: ready and without work."""
    state = view.deployment
    return "" if state is None else f"{state.pods} ({max(0, state.ready_pods - view.busy)} warm)"


def _cold_start(view: wire.FunctionView) -> str:
    phases = {} if view.deployment is None else view.deployment.cold_start
    whole = f"{sum(phases.values()):.0f} s"
    return f"{whole} ({', '.join(f'{name} {spent:.0f}' for name, spent in phases.items())})" if phases else ""


def _revision(view: wire.FunctionView) -> str:
    """Say which Revision is the newest, or why it does not run, and which ones workers still serve beside it."""
    state = view.deployment
    if state is None:
        return ""
    others = [f"{name} ({count})" for name, count in view.revisions.items() if name != state.revision]
    return ", ".join([state.reason or state.revision, *others])


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(trainlet completion bash)"."""
    from click.shell_completion import get_completion_class

    from trainlet.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "trainlet", "_TRAINLET_COMPLETE").source())


COMMANDS = (runs, logs, functions, completion)
