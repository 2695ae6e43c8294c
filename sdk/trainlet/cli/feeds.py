"""`trainlet billing events|allocations`: charges in the shapes of usage meters and of cost dashboards."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from trainlet.cli import output
from trainlet.client import connect
from trainlet.core import bills
from trainlet.core.errors import UserError
from trainlet.core.settings import Settings

_period = click.option("--period", help="A month in UTC, such as 2026-07; without it the one that goes on.")


@click.command()
@_period
@click.option(
    "--to", required=True, metavar="FILE|URL", help="A new file of JSON lines, or an HTTP sink of CloudEvents."
)
@click.option("--source", default="/trainlet", show_default=True, help="The source that the events name.")
@output.all_projects_option
def events(period: str | None, to: str, source: str, all_projects: bool) -> None:
    """Send the charges of a period as CloudEvents, per minute, with ids that are the same each time.

    TRAINLET_SINK_TOKEN is the bearer token of an HTTP sink.
    """
    from trainlet_functions.exports import cloudevents

    if to.startswith(("http://", "https://")):
        with rows(period, all_projects) as (snapshot, found), _sink(to) as post:
            sent = cloudevents.send(cloudevents.events(found, source), post)
    else:
        sent = 0
        try:
            with rows(period, all_projects) as (snapshot, found), Path(to).open("x", encoding="utf-8") as file:
                for event in cloudevents.events(found, source):
                    sent += 1
                    file.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n")
        except FileExistsError as error:
            raise UserError(f"{to} exists, and nothing is written over. Name another file.") from error
        except OSError as error:
            raise UserError(f"{to} cannot be written: {error.strerror}. Name another file.") from error
    click.echo(f"period {snapshot.period} ({snapshot.state}): {sent:,} events to {to}")


@click.command()
@_period
@click.option("--by", type=click.Choice(["project", "run", "sku"]), default="project", show_default=True)
@output.all_projects_option
def allocations(period: str | None, by: Any, all_projects: bool) -> None:
    """Print the charges of a period as OpenCost's allocation API would, per UTC day."""
    from trainlet_functions.exports import allocations as shapes

    with rows(period, all_projects) as (_, found):
        output.print_json(shapes.allocations(found, by))


def rows(period: str | None, all_projects: bool) -> AbstractContextManager[tuple[bills.Snapshot, Any]]:
    """Open the billing rows of a period, the open one when None is given."""
    chosen = None if period is None else str(bills.Period.parse(period))
    client = connect(Settings.from_environment())
    return client.billing_rows(chosen, bills.EVERY_PROJECT if all_projects else None)


class _sink:  # noqa: N801 - reads as a function
    """An HTTP sink that is posted to over one connection."""

    def __init__(self, url: str) -> None:
        import httpx

        token = os.environ.get("TRAINLET_SINK_TOKEN")
        self._url = url
        self._failed: type[Exception] = httpx.TransportError
        self._http = httpx.Client(timeout=30, headers={"Authorization": f"Bearer {token}"} if token else {})

    def __enter__(self) -> Any:
        return self._post

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _post(self, body: bytes, media: str) -> int:
        try:
            return int(self._http.post(self._url, content=body, headers={"Content-Type": media}).status_code)
        except self._failed:
            return 0
