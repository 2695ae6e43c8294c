"""`trainlet checkpoints`: list, verify, compare, export, import, pin and remove what tasks have saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

import click

from trainlet import checkpoints as saved
from trainlet.cli import output


@click.group()
def checkpoints() -> None:
    """Look at, copy and remove what tasks have saved. TASK is the key of a task: RUN.NAME."""


def _task(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--store", metavar="URL", help="The store; default: that of the training API.")(function)
    return click.argument("task")(function)


@checkpoints.command()
@_task
@output.json_option
def ls(task: str, store: str | None, as_json: bool) -> None:
    """List the committed checkpoints of a task, the newest first."""
    notes = saved.ls(task, store=store)
    tags = saved.tags(task, store=store)
    if as_json:
        output.print_json([note.model_dump(mode="json") for note in notes])
        return
    if not notes:
        click.echo(f"{task} has no checkpoint.")
        return
    rows = [
        [
            note.step,
            note.epoch,
            note.reason,
            f"{note.size_bytes / 2**20:.1f}",
            note.committed_at,
            ", ".join(f"{name}={value:g}" for name, value in note.metrics.items()),
            ", ".join(tag.split(".")[0] for tag, step in tags.items() if step == note.step),
        ]
        for note in notes
    ]
    columns = ["step", "attempt", "reason", "MiB", "committed (UTC)", "metrics", "tags"]
    output.table("", columns, rows, numeric=("step", "attempt", "MiB"))


@checkpoints.command()
@_task
def verify(task: str, store: str | None) -> int:
    """Read every byte and check it. Exit code 1 when something is wrong."""
    problems = saved.verify(task, store=store)
    for problem in problems:
        click.echo(problem)
    if not problems:
        click.echo("Every checkpoint is whole.")
    return 1 if problems else 0


@checkpoints.command()
@_task
@click.argument("before", type=int)
@click.argument("after", type=int)
@output.json_option
def diff(task: str, store: str | None, before: int, after: int, as_json: bool) -> None:
    """Say which tensors differ between two steps."""
    found = asdict(saved.diff(task, before, after, store=store))
    if as_json:
        output.print_json(found)
        return
    for what in ("added", "removed", "changed"):
        for name in found[what]:
            click.echo(f"{what:8} {name}")
    click.echo(f"{len(found['same'])} tensors are the same.")


@checkpoints.command()
@_task
@click.argument("path", type=click.Path())
@click.option("--step", type=int, help="Which checkpoint; default: the newest.")
@click.option("--format", "kind", type=click.Choice(["safetensors", "hf", "torch", "dcp"]), default="safetensors")
@click.option("--only", metavar="NAME", help="One registered object, under its own names.")
def export(
    task: str,
    store: str | None,
    path: str,
    step: int | None,
    kind: Literal["safetensors", "hf", "torch", "dcp"],
    only: str | None,
) -> None:
    """Write a checkpoint for another tool: a .safetensors file, a Hugging Face folder, torch.save, or DCP."""
    found = saved.export(task, path, step=step, format=kind, only=only, store=store)
    click.echo(f"step {found} is in {path}")


@checkpoints.command("import")
@_task
@click.argument("path", type=click.Path(exists=True))
@click.option("--step", type=int, default=0, show_default=True, help="The step that the checkpoint stands for.")
def import_(task: str, store: str | None, path: str, step: int) -> None:
    """Make what another tool has saved the newest checkpoint: .safetensors, Hugging Face, DCP, or torch.save."""
    click.echo(f"step {step} holds {', '.join(saved.import_(task, path, step=step, store=store))}: register these")


@checkpoints.command()
@_task
@click.argument("step", type=int)
@click.option("--remove", is_flag=True, help="Remove the pin.")
def pin(task: str, store: str | None, step: int, remove: bool) -> None:
    """Keep the checkpoint of a step for good."""
    (saved.unpin if remove else saved.pin)(task, step, store=store)


@checkpoints.command()
@_task
@click.argument("step", type=int)
def rm(task: str, store: str | None, step: int) -> None:
    """Remove the checkpoint of a step; the newest and the pinned ones are refused."""
    saved.rm(task, step, store=store)


@checkpoints.command()
@_task
@click.option("--step", type=int, help="Which checkpoint; default: the newest.")
@click.option("--valid", default="1h", show_default=True, metavar="TIME", help="For how long; at most 7d.")
@output.json_option
def link(task: str, store: str | None, step: int | None, valid: str, as_json: bool) -> None:
    """Print signed links that read a checkpoint in a bucket without credentials: its manifest first, then its packs."""
    found = saved.link(task, step=step, valid=valid, store=store)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
        return
    for url in (found.manifest, *found.packs.values()):
        click.echo(url)


@checkpoints.command()
@_task
def unlock(task: str, store: str | None) -> None:
    """Let another writer in after one that is dead for certain, where a store ignores the condition of a PUT."""
    number = saved.unlock(task, store=store)
    click.echo(f"{number} claims let go" if number else f"Nobody holds a claim on {task}.")


COMMANDS = (checkpoints,)
