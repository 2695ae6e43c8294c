"""`trainlet triggers`: what starts runs by itself, and why something waits; `trainlet trigger test`: a dry run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import click

from trainlet import triggers as decorators
from trainlet.cli import costs, loading, output
from trainlet.cli.events import adapter_options, read_event, read_json, vendor_headers
from trainlet.client import connect
from trainlet.client.http import Client
from trainlet.client.triggers import Triggers
from trainlet.core import events as cloudevents
from trainlet.core.durations import nearest
from trainlet.core.errors import NotFoundError, TrainletError, UserError
from trainlet.core.settings import Settings
from trainlet.core.triggers import TriggerView
from trainlet.pipelines import Pipeline

_LOOKED_AT = 20  # runs of the past that an estimate is made of


@click.group(invoke_without_command=True)
@output.json_option
@click.pass_context
def triggers(ctx: click.Context, as_json: bool) -> None:
    """List subscriptions and schedules with what waits and why; or `pause` and `resume` one."""
    if ctx.invoked_subcommand is not None:
        return
    found = Triggers(connect(Settings.from_environment())).all()
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    if not found:
        click.echo("Nothing starts by itself yet. `trainlet deploy FILE` registers the triggers of a file.")
        return
    rows = [
        [
            view.name,
            "events" if view.kind == "event" else "schedule",
            view.pipeline,
            view.state,
            view.waiting,
            len(view.running),
            "" if view.next_at is None else f"{view.next_at[:10]} {output.clock(view.next_at)}",
            view.reason,
        ]
        for view in found
    ]
    columns = ["trigger", "kind", "pipeline", "state", "waiting", "running", "next (UTC)", "reason"]
    output.table("", columns, rows, numeric=("waiting", "running"))


@triggers.command()
@click.argument("name")
@click.option(
    "--reason", default="paused by the user", show_default=True, help="Shown wherever something waits for it."
)
def pause(name: str, reason: str) -> None:
    """Start nothing more: events still come in and wait, moments of a schedule are noted as skipped."""
    _change(name, lambda api, view: api.pause(view.kind, view.name, reason))


@triggers.command()
@click.argument("name")
def resume(name: str) -> None:
    """Go on: what waited starts, and a breaker that had opened is closed."""
    _change(name, lambda api, view: api.resume(view.kind, view.name))


@triggers.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a trigger: nothing more starts by it. What waited is kept as skipped; its runs go on."""
    api = Triggers(connect(Settings.from_environment()))
    view = _named(api, name)
    api.delete(view.kind, view.name)
    click.echo(f"{name} is removed" + (f"; {view.waiting} events that waited are skipped" if view.waiting else ""))


def _named(api: Triggers, name: str) -> TriggerView:
    known = {view.name: view for view in api.all()}
    if name not in known:
        hint = nearest(name, list(known)) if known else "There is none."
        raise NotFoundError(f"There is no trigger {name!r}. {hint}")
    return known[name]


def _change(name: str, action: Callable[[Triggers, TriggerView], TriggerView]) -> None:
    api = Triggers(connect(Settings.from_environment()))
    view = action(api, _named(api, name))
    waiting = f", {view.waiting} events wait" if view.waiting else ""
    click.echo(f"{view.name} is {view.state}{f': {view.reason}' if view.reason else ''}{waiting}")


@click.group()
def trigger() -> None:
    """Try out a trigger of a file before it is deployed."""


@trigger.command()
@click.argument("target", metavar="FILE[:PIPELINE]")
@click.argument("event", metavar="EVENT.json", type=click.Path(dir_okay=False))
@adapter_options
@output.json_option
def test(target: str, event: str, adapter: str | None, github_event: str | None, as_json: bool) -> int:
    """Say which triggers of a file an event matches, with which parameters, and what the run may cost. Starts nothing.

    With --adapter the file is what a vendor sends; of several events the first is tried.
    """
    given = read_event(read_json(event), event) if adapter is None else _adapted(adapter, event, github_event)
    found = {
        name: (pipeline, one)
        for pipeline in loading.pipelines(target)
        for name, one in decorators.named(pipeline).items()
    }
    if not any(not one.schedule for _, one in found.values()):
        raise UserError(f"{target} has no pipeline with @tl.on_event.")
    results: dict[str, dict[str, Any]] = {}
    for name, (pipeline, one) in found.items():
        if not one.schedule:
            results[name] = {"pipeline": pipeline.name, **decorators.tried(one, given)}
    for result in results.values():
        if result["matches"]:
            result["estimate"] = _estimate(found[name][0], result["params"])
    if as_json:
        output.print_json(results)
    else:
        for name, result in results.items():
            _tell(name, result)
    return 0 if any(result["matches"] and not result["error"] for result in results.values()) else 1


def _adapted(adapter: str, file: str, github_event: str | None) -> cloudevents.Event:
    from trainlet_functions.triggers import adapters

    found = adapters.convert(adapter, vendor_headers(github_event), json.dumps(read_json(file)).encode())
    if not found:
        raise UserError(f"{file} says nothing that is an event: it is a test, or nothing has changed.")
    click.echo(f"{found[0].type} from {found[0].source}, about {found[0].subject}", err=True)
    return found[0]


def _tell(name: str, result: dict[str, Any]) -> None:
    if not result["matches"]:
        click.echo(f"{name}: does not match: {result['why']}")
        return
    click.echo(f"{name}: matches, and would start {result['pipeline']}")
    if result["error"]:
        click.echo(f"  but {result['error']}")
    for parameter, value in result["params"].items():
        click.echo(f"  {parameter} = {value!r}")
    click.echo(f"  {result['estimate']}")


def _estimate(pipeline: Pipeline[Any, Any], params: dict[str, Any]) -> str:
    """Say what this run would cost, and what the last ones did; nothing is started to find out."""
    told = costs.sentence(lambda: pipeline.estimate(**params))
    try:
        spent, currency = _costs(connect(Settings.from_environment()), pipeline.name)
    except TrainletError:
        return told
    if not spent:
        return told
    middle = output.money(round(statistics.median(spent)), currency)
    return (
        f"{told}; the last {len(spent)} runs cost {middle} each (median), at most {output.money(max(spent), currency)}"
    )


def _costs(client: Client, pipeline: str) -> tuple[list[int], str]:
    ended = [run for run in client.list_runs(500) if run.pipeline == pipeline and run.state == "succeeded"]
    reports = [client.usage(run.id) for run in ended[:_LOOKED_AT]]
    return [report.cost_nano for report in reports], reports[0].currency if reports else "USD"


COMMANDS = (triggers, trigger)
