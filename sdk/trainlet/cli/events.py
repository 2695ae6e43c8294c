"""`trainlet events`: what came in, what it started, and what it cost; sending and replaying."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.client.http import Client
from trainlet.client.triggers import Triggers
from trainlet.core import events as cloudevents
from trainlet.core import wire
from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.settings import Settings
from trainlet.core.triggers import PART_LABEL, EventView, MatchView

NOTHING = "matched nothing"


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice(["held", "started", "skipped"]), help="Only events with a match in it.")
@click.option("--limit", "-n", type=click.IntRange(1, 500), default=20, show_default=True)
@output.json_option
@click.pass_context
def events(ctx: click.Context, state: str | None, limit: int, as_json: bool) -> None:
    """List events with what they started, the newest first; or `show`, `send` and `replay` one."""
    if ctx.invoked_subcommand is not None:
        return
    found = Triggers(connect(Settings.from_environment())).events(state=state, limit=limit)
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    if not found:
        none = "No event has come yet. `trainlet events send FILE` sends one."
        click.echo(none if state is None else f"No event has a match that is {state}.")
        return
    if sys.stdout.isatty():
        for view in found:
            click.echo("\n".join(paragraph(view, shutil.get_terminal_size().columns)))
        return
    rows = [
        [view.number, _received(view), view.type, view.source, view.subject, view.id, trigger, said]
        for view in found
        for trigger, said in ([(match.trigger, _said(match)) for match in view.matches] or [("", NOTHING)])
    ]
    output.table("", ["event", "received (UTC)", "type", "source", "subject", "id", "trigger", "verdict"], rows)


def paragraph(view: EventView, width: int) -> list[str]:
    """Return an event as lines for people: what came, from where and about what, and what each trigger made of it."""
    lines = [f"{view.number:>6}  {_received(view)}  {view.type}"]
    facts = [*([f"about {view.subject}"] if view.subject else []), f"from {view.source}", f"id {view.id}"]
    for fact in facts:
        joined = f"{lines[-1]}  {fact}"
        if len(lines) > 1 and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(f"{'':8}{fact}")
    for said in [f"{match.trigger}: {_said(match)}" for match in view.matches] or [NOTHING]:
        lines += textwrap.wrap(
            said,
            max(width, 40),
            initial_indent=f"{'':8}-> ",
            subsequent_indent=f"{'':11}",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _received(view: EventView) -> str:
    return f"{view.received_at[:10]} {output.clock(view.received_at)}"


@events.command()
@click.argument("event", metavar="ID")
@output.json_option
def show(event: str, as_json: bool) -> None:
    """Show the trail of an event: what it matched, its runs with their tasks, and the cost. ID is its id or number."""
    client = connect(Settings.from_environment())
    view = _find(client, event)
    if as_json:
        output.print_json({**view.model_dump(mode="json"), "runs": [_run(client, one) for one in view.matches]})
        return
    click.echo(f"event {view.number}  {view.type}  id {view.id}")
    click.echo(
        f"  from {view.source}, received {view.received_at}" + (f", about {view.subject}" if view.subject else "")
    )
    trace = view.event.get("traceparent")
    if trace:
        click.echo(f"  trace {trace}")
    if not view.matches:
        click.echo(f"  {NOTHING}: `trainlet trigger test FILE event.json` says why")
    for match in view.matches:
        again = f" (replay {match.replay})" if match.replay else ""
        click.echo(f"  -> {match.trigger}{again}: {_said(match)}")
        if match.run_id is not None:
            _print_run(client, match.run_id)


def adapter_options(command: Any) -> Any:
    """Let a command take what a vendor sends instead of a CloudEvent."""
    named = click.option(
        "--adapter", metavar="NAME", help="FILE is what s3, alertmanager, mlflow, github or kfp sends by webhook."
    )
    event = click.option("--github-event", metavar="NAME", help="With --adapter github: the header X-GitHub-Event.")
    return named(event(command))


@events.command()
@click.argument("file", type=click.Path(dir_okay=False))
@adapter_options
@output.json_option
def send(file: str, adapter: str | None, github_event: str | None, as_json: bool) -> None:
    """Send the CloudEvents of a JSON file (`-`: standard input): one, or an array. A missing id is made up."""
    api = Triggers(connect(Settings.from_environment()))
    if adapter is not None:
        answer = api.notify(adapter, read_json(file), vendor_headers(github_event))
    else:
        answer = api.send([read_event(item, f"event {number}") for number, item in enumerate(_items(file))])
    if as_json:
        output.print_json(answer.model_dump(mode="json"))
        return
    for event_id in answer.items:
        click.echo(event_id)
    if answer.new < len(answer.items):
        click.echo(f"{len(answer.items) - answer.new} had come before and change nothing", err=True)
    click.echo(f"{answer.new} new, {answer.matched} matches", err=True)


@events.command()
@click.argument("event", metavar="ID")
@click.option("--trigger", help="Give it to this subscription; default: to all that it matches now.")
@output.json_option
def replay(event: str, trigger: str | None, as_json: bool) -> None:
    """Give an event to its triggers once more: this starts runs of its own."""
    client = connect(Settings.from_environment())
    view = Triggers(client).replay(_find(client, event).number, trigger)
    if as_json:
        output.print_json(view.model_dump(mode="json"))
        return
    last = max((match.replay for match in view.matches), default=0)
    for match in view.matches:
        if match.replay == last:
            click.echo(f"{match.trigger}: {_said(match)}")
    if not view.matches:
        click.echo("It matches nothing. --trigger NAME gives it to one all the same.")


def _find(client: Client, text: str) -> EventView:
    """Return the event with this id, or else with this number; raises UserError when several sources have the id."""
    api = Triggers(client)
    found = api.events(event_id=text)
    if len(found) > 1:
        numbers = ", ".join(f"{view.number} ({view.source})" for view in found)
        raise UserError(f"Several sources have an event {text!r}; give its number: {numbers}.")
    if found:
        return api.event(found[0].number)
    if text.isdecimal():
        return api.event(int(text))
    raise NotFoundError(f"There is no event {text!r}. `trainlet events` lists the newest.")


def _said(match: MatchView) -> str:
    if match.state == "started":
        return f"run {match.run_id} {match.run_state or ''}".rstrip()
    return f"{'waits' if match.state == 'held' else 'skipped'}: {match.reason}"


def _print_run(client: Client, run_id: str) -> None:
    try:
        changes, usage = client.changes(run_id, 0), client.usage(run_id)
        part = changes.run.labels.get(PART_LABEL)
        _print_tasks(run_id, changes.tasks, usage)
        if part is not None:
            click.echo(f"     {part}, which the pods of Kubeflow Pipelines have dispatched here:")
            _print_run(client, part)
    except NotFoundError:
        click.echo("     the run is not known any more")


def _print_tasks(run_id: str, tasks: list[wire.TaskView], usage: wire.UsageReport) -> None:
    for task in tasks:
        spent = sum(row.cost_nano or 0 for row in usage.rows if row.task == task.key)
        name = task.key.removeprefix(f"{run_id}.")
        took = output.seconds_between(task.created_at, task.finished_at)
        click.echo(f"     {name} {task.state} {took} {output.money(spent, usage.currency)}".rstrip())
    virtual = ", virtual devices" if usage.virtual else ""
    click.echo(f"     cost {output.money(usage.cost_nano, usage.currency)} ({usage.gpu_seconds} GPU-seconds{virtual})")


def _run(client: Client, match: MatchView) -> dict[str, Any] | None:
    if match.run_id is None:
        return None
    changes, usage = client.changes(match.run_id, 0), client.usage(match.run_id)
    return {
        **changes.run.model_dump(mode="json"),
        "tasks": [task.model_dump(mode="json") for task in changes.tasks],
        "cost_nano": usage.cost_nano,
    }


def read_json(file: str) -> Any:
    """Read a JSON file, or standard input for `-`; raises UserError."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        return json.loads(text)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UserError(f"{file} is no JSON: {error}.") from None


def _items(file: str) -> list[Any]:
    found = read_json(file)
    return found if isinstance(found, list) else [found]


def vendor_headers(github_event: str | None) -> dict[str, str]:
    """Return the headers that say what a body does not."""
    return {} if github_event is None else {"X-GitHub-Event": github_event}


def read_event(item: Any, where: str) -> cloudevents.Event:
    """Return the CloudEvent of a JSON form; what a person leaves out of a file by hand is made up."""
    if isinstance(item, dict):
        item = {"specversion": cloudevents.SPECVERSION, "id": secrets.token_hex(8), **item}
    return cloudevents.from_json(item, where)


# `trainlet event send` and `event replay` are what people type who send one.
_event = click.Group(
    "event", commands=events.commands, help="The same as `trainlet events`, for one event.", hidden=True
)
COMMANDS = (events, _event)
