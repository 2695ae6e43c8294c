"""`trainlet sink`: where a project has the platform's events sent to."""

from __future__ import annotations

from typing import cast

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.client.sinks import Sinks
from trainlet.core.durations import parse_duration_s
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings
from trainlet.core.sinks import LetterState, SinkCreate, SinkSecret


@click.group()
def sink() -> None:
    """Have runs, tasks and checkpoints told to other systems, as signed CloudEvents."""


def _api() -> Sinks:
    return Sinks(connect(Settings.from_environment()))


@sink.command()
@click.argument("url")
@click.option("--name", help="Default: after the URL's host.")
@click.option("--types", default="", metavar="TYPE,...", help="Such as run.failed,checkpoint.*; default: all.")
@output.json_option
def add(url: str, name: str | None, types: str, as_json: bool) -> None:
    """Send events to URL from now on, and print the secret that signs them: it is shown this once."""
    wanted = [one.strip() for one in types.split(",") if one.strip()]
    asked = SinkCreate.model_validate({"url": url, "name": name, "types": wanted})
    _tell(_api().create(asked), as_json=as_json)


@sink.command("ls")
@output.json_option
def list_sinks(as_json: bool) -> None:
    """List the sinks with what waits for each, what is dead, and why."""
    found = _api().all()
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    if not found:
        click.echo("There is no sink. `trainlet sink add URL` adds one.")
        return
    rows = [
        [
            view.name,
            view.url,
            ", ".join(one.removeprefix("dev.trainlet.") for one in view.types) or "all",
            view.state,
            view.waiting,
            view.dead,
            view.last_delivered_at or "never",
            view.reason,
        ]
        for view in found
    ]
    columns = ["sink", "url", "types", "state", "waiting", "dead", "last delivered (UTC)", "reason"]
    output.table("", columns, rows, numeric=("waiting", "dead"))


@sink.command()
@click.argument("name")
@output.json_option
def test(name: str, as_json: bool) -> int:
    """Send a test event now, and say what the sink answers."""
    answer = _api().test(name)
    if as_json:
        output.print_json(answer.model_dump(mode="json"))
    else:
        said = "it took the event" if answer.good else f"it did not take the event: {answer.reason}"
        click.echo(f"{name}: {said} ({'' if answer.status is None else f'{answer.status}, '}{answer.took_ms} ms)")
    return 0 if answer.good else 1


@sink.command()
@click.argument("name")
@click.option("--state", type=click.Choice(["dead", "waiting", "delivered"]), default="dead", show_default=True)
@click.option("--limit", "-n", type=click.IntRange(1, 500), default=50, show_default=True)
@output.json_option
def letters(name: str, state: str, limit: int, as_json: bool) -> None:
    """List events that could not be delivered, that wait, or that were delivered lately; the newest first."""
    found = _api().letters(name, cast(LetterState, state), limit)
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    rows = [[one.number, one.created_at, one.type, one.subject, one.tries, one.next_at, one.reason] for one in found]
    columns = ["letter", "created (UTC)", "type", "subject", "tries", "next try (UTC)", "reason"]
    output.table("", columns, rows, numeric=("tries",))


@sink.command()
@click.argument("name")
@click.argument("letters", nargs=-1, type=int)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the sink.")
def replay(name: str, letters: tuple[int, ...], everything: bool) -> None:
    """Send dead letters once more: those whose numbers are given, or --all."""
    if bool(letters) == everything:
        raise UserError("Give the numbers that `trainlet sink letters` shows, or --all.")
    count = _api().replay(name, None if everything else list(letters))
    click.echo(f"{count} letters are sent once more to {name}.")


@sink.command()
@click.argument("name")
def resume(name: str) -> None:
    """Send again at once to a sink that was paused, or that rests after failures."""
    view = _api().resume(name)
    click.echo(f"{name} is {view.state}; {view.waiting} events wait.")


@sink.command()
@click.argument("name")
@click.option(
    "--grace", default="24h", show_default=True, help="How long events are signed with both secrets; 0: not at all."
)
@output.json_option
def rotate(name: str, grace: str, as_json: bool) -> None:
    """Give a sink a new secret and print it."""
    grace_s = 0.0 if grace.strip() == "0" else parse_duration_s(grace, "--grace")
    _tell(_api().rotate(name, grace_s), as_json=as_json)


@sink.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a sink with what waits for it."""
    _api().remove(name)
    click.echo(f"The sink {name} is removed.")


def _tell(shown: SinkSecret, *, as_json: bool) -> None:
    if as_json:
        output.print_json(shown.model_dump(mode="json"))
        return
    click.echo(f"sink    {shown.sink.name}")
    click.echo(f"secret  {shown.secret}")
    click.echo("Events are signed with it as Standard Webhooks has it; the secret is not shown again.", err=True)


COMMANDS = (sink,)
