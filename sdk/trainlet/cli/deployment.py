"""Commands that make functions known to a training API: `deploy`, and `token` for those who may use them."""

from __future__ import annotations

import time
from typing import Any

import click
from pydantic import ValidationError

from trainlet import registration, sessions
from trainlet.cli import loading, output
from trainlet.client import connect
from trainlet.core import wire
from trainlet.core.durations import parse_duration_s
from trainlet.core.errors import NotFoundError, PlatformError, UserError
from trainlet.core.settings import Settings
from trainlet.core.specs import FunctionSpec

LOOK_EVERY_S = 1.0


@click.command()
@click.argument("target", metavar="FILE[:NAME]")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--wait", default="5m", show_default=True, help="How long to wait until a cluster is ready for it.")
@output.json_option
def deploy(target: str, dry_run: bool, wait: str, as_json: bool) -> int:
    """Register the steps and triggers of a file, show what changes, and wait until they can run.

    `run` does the same for the steps that it needs. Tasks that exist keep the version they were created with.
    """
    patience_s = parse_duration_s(wait, "--wait")
    steps = loading.steps(target)
    session = sessions.current(Settings.from_environment())
    changes = {name: _changes(session, step.spec()) for name, step in steps.items()}
    if not as_json:
        for name, lines in changes.items():
            for line in lines or ["unchanged"]:
                click.echo(f"{name}: {line}")
    if not dry_run:
        session.register(steps)
    views = [] if dry_run else [_ready(session, name, time.monotonic() + patience_s, as_json) for name in steps]
    started = registration.register(session, loading.pipelines(target), dry_run=dry_run)
    if as_json:
        functions: dict[str, Any] = (
            {name: {"changes": lines} for name, lines in changes.items()}
            if dry_run
            else {view.name: {"changes": changes[view.name], **view.model_dump(mode="json")} for view in views}
        )
        output.print_json({**functions, **{name: {"changes": lines} for name, lines in started.items()}})
        return 0
    for name, lines in started.items():
        for line in lines or ["unchanged"]:
            click.echo(f"{name}: {line}")
    return 0


def _changes(session: sessions.Session, spec: FunctionSpec) -> list[str]:
    """Say what registering a spec changes, a line each; nothing for the version that is deployed."""
    try:
        old = session.client.get_function(spec.name)
    except NotFoundError:
        return [f"new, version {spec.digest()[:12]}"]
    if old.digest == spec.digest():
        return []
    before, after = old.spec.model_dump(mode="json"), spec.model_dump(mode="json")
    lines = [f"version {old.digest[:12]} -> {spec.digest()[:12]}"]
    for field, value in after.items():
        if field in ("bundle", "packages_lock"):
            if before.get(field) != value:
                lines.append("code changed" if field == "bundle" else "packages changed")
        elif before.get(field) != value:
            lines.append(f"{field}: {_short(before.get(field))} -> {_short(value)}")
    return lines


def _short(value: Any) -> str:
    text = "none" if value in (None, [], {}, "") else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _ready(session: sessions.Session, name: str, deadline: float, quiet: bool) -> wire.FunctionView:
    """Wait until a function can run, saying why it cannot yet; raises PlatformError when it will not."""
    said = ""
    while True:
        view = session.client.get_function(name)
        state = view.deployment
        if state is None or (state.ready and not state.reason):
            if not quiet:
                click.echo(f"{name}: ready" + (f", revision {state.revision}" if state and state.revision else ""))
            return view
        if state.failed or time.monotonic() > deadline:
            still = "is not ready" if state.failed else "is not ready yet"
            raise PlatformError(
                f"{name} {still}: {state.reason}. `trainlet doctor --cluster` checks the cluster; deploying again is harmless."
            )
        if state.reason != said and not quiet:
            said = state.reason
            click.echo(f"{name}: waiting: {said}")
        time.sleep(LOOK_EVERY_S)


@click.group()
def token() -> None:
    """Let people and programs use a training API."""


@token.command()
@click.option("--project", required=True, help="The project whose runs it may see and make.")
@click.option("--label", required=True, help="Who or what it is for; shown wherever the token was used.")
@click.option("--admin", is_flag=True, help="May do everything in every project.")
@click.option("--events", is_flag=True, help="May bring events in, and nothing else.")
@click.option("--expires", help='When it ends, such as "90d" (default: never).')
def create(project: str, label: str, admin: bool, events: bool, expires: str | None) -> None:
    """Make a token and print it once. Needs an admin's token in TRAINLET_TOKEN."""
    if admin and events:
        raise UserError("A token is --admin or for --events only. Leave one out.")
    expires_s = None if expires is None else parse_duration_s(expires, "--expires")
    try:
        body = wire.TokenCreate(project=project, label=label, admin=admin, events=events, expires_s=expires_s)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--{first['loc'][0]} {first['input']!r} is not valid: {first['msg']}.") from None
    click.echo(connect(Settings.from_environment()).create_token(body).token)


COMMANDS = (deploy, token)
