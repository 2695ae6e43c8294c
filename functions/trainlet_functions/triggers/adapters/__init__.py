"""Adapters: what stores, registries and monitors send by webhook becomes CloudEvents, with ids that follow from what is said.

The same notification twice gives the same id, so that the intake takes it once, whichever way it came (direct, through a
queue, sent again by its sender). An adapter only reads: it must not know the database, projects or who the caller is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainlet.core import events
from trainlet.core.durations import nearest
from trainlet.core.errors import NotFoundError, UserError
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import alertmanager, github, kubeflow, mlflow, s3

Adapter = Callable[[Mapping[str, str], bytes], list[Event]]  # of headers with lower-case names, and a body
ADAPTERS: Mapping[str, Adapter] = {
    "s3": s3.convert,
    "alertmanager": alertmanager.convert,
    "mlflow": mlflow.convert,
    "github": github.convert,
    "kfp": kubeflow.convert,
}


def convert(name: str, headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return the events of one notification, each valid; none for one that says nothing, such as a test.

    Raises NotFoundError for an unknown adapter, UserError for what is not its vendor's.
    """
    if name not in ADAPTERS:
        raise NotFoundError(f"There is no adapter {name!r}. {nearest(name, list(ADAPTERS))}")
    found = ADAPTERS[name]({header.lower(): value for header, value in headers.items()}, body)
    if len(found) > events.MAX_BATCH:
        raise UserError(f"The notification has {len(found)} events; at most {events.MAX_BATCH} are taken at once.")
    return [events.from_json(event.to_json(), f"event {number} of {name}") for number, event in enumerate(found)]
