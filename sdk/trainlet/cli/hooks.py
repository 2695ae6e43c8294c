"""`trainlet hook`: addresses for stores, registries and monitors that cannot hold a token of the project."""

from __future__ import annotations

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.client.hooks import Hooks
from trainlet.core.durations import parse_duration_s
from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.hooks import HookCreate, HookSecret, HookView
from trainlet.core.settings import Settings

_SCHEMES = ("hmac", "standard", "mlflow", "bearer", "url", "sns")
_HOW = {
    "hmac": "the secret, and signs with it in X-Hub-Signature-256",
    "standard": "the secret, and signs with it in Webhook-Signature (Standard Webhooks)",
    "mlflow": "the secret as its webhook's, and signs with it in X-MLflow-Signature",
    "bearer": "the header Authorization: Bearer SECRET, or the password in the URL",
    "url": "nothing but the URL: who has it may send",
    "sns": "the URL, in an HTTPS subscription of the topic; AWS signs each message",
}
_scheme = click.option("--scheme", type=click.Choice(_SCHEMES), help="Which, where an adapter has several hooks.")


@click.group()
def hook() -> None:
    """Let senders without a token bring events in: GitHub, MLflow, Alertmanager, MinIO, SNS and others."""


@hook.command()
@click.option("--adapter", required=True, metavar="NAME", help="s3, alertmanager, mlflow, github, kfp or cloudevents.")
@click.option("--scheme", type=click.Choice(_SCHEMES), help="How the sender shows the secret; default: what it can do.")
@click.option("--source", "sources", multiple=True, help="Take only events of this source; it may end with *.")
@click.option("--topic", "topics", multiple=True, help="With --scheme sns: take only messages of this topic (its ARN).")
@output.json_option
def create(adapter: str, scheme: str | None, sources: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> None:
    """Make a hook and print its URL and secret: this is the only time that the secret is shown."""
    client = connect(Settings.from_environment())
    given = {"adapter": adapter, "scheme": scheme, "sources": list(sources), "topics": list(topics)}
    asked = HookCreate.model_validate(given)
    _tell(Hooks(client).create(asked), client.url, as_json=as_json)


@hook.command("ls")
@output.json_option
def list_hooks(as_json: bool) -> None:
    """List the hooks, and when each was last used."""
    client = connect(Settings.from_environment())
    found = Hooks(client).all()
    if as_json:
        output.print_json([view.model_dump(mode="json") for view in found])
        return
    if not found:
        click.echo("There is no hook. `trainlet hook create --adapter NAME` makes one.")
        return
    rows = [
        [
            view.adapter,
            view.scheme,
            client.url + view.path,
            ", ".join([*view.topics, *view.sources]) or "any",
            view.last_used_at or "never",
        ]
        for view in found
    ]
    output.table("", ["adapter", "scheme", "url", "takes", "last used (UTC)"], rows)


@hook.command()
@click.argument("adapter")
@_scheme
@click.option("--grace", default="24h", show_default=True, help="How long the secret before stays good; 0: not at all.")
@output.json_option
def rotate(adapter: str, scheme: str | None, grace: str, as_json: bool) -> None:
    """Give a hook a new secret and print it."""
    client = connect(Settings.from_environment())
    grace_s = 0.0 if grace.strip() == "0" else parse_duration_s(grace, "--grace")
    view = _named(Hooks(client).all(), adapter, scheme)
    _tell(Hooks(client).rotate(view.adapter, view.scheme, grace_s), client.url, as_json=as_json)


@hook.command("rm")
@click.argument("adapter")
@_scheme
def remove(adapter: str, scheme: str | None) -> None:
    """Remove a hook: its senders are refused from now on."""
    api = Hooks(connect(Settings.from_environment()))
    view = _named(api.all(), adapter, scheme)
    api.remove(view.adapter, view.scheme)
    click.echo(f"The hook {view.adapter} {view.scheme} is removed.")


def _named(found: list[HookView], adapter: str, scheme: str | None) -> HookView:
    fitting = [view for view in found if view.adapter == adapter and scheme in (None, view.scheme)]
    if len(fitting) > 1:
        raise UserError(f"{adapter} has several hooks; add --scheme {' or '.join(view.scheme for view in fitting)}.")
    if not fitting:
        known = ", ".join(f"{view.adapter} {view.scheme}" for view in found) or "none"
        raise NotFoundError(f"There is no hook {adapter}{f' {scheme}' if scheme else ''}. There are: {known}.")
    return fitting[0]


def _tell(shown: HookSecret, base: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({**shown.model_dump(mode="json"), "url": base + shown.path})
        return
    click.echo(f"url     {base}{shown.path}")
    click.echo(f"secret  {shown.secret}")
    click.echo(f"The sender needs {_HOW[shown.hook.scheme]}.", err=True)
    click.echo("The secret is not shown again; `trainlet hook rotate` makes a new one.", err=True)
    if shown.hook.previous_until is not None:
        click.echo(f"The secret before stays good until {shown.hook.previous_until}.", err=True)


COMMANDS = (hook,)
