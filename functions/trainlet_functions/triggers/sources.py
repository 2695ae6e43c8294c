"""Which sources an event from outside may have: never the platform's own, and those that the project is allowed.

What the platform says of itself (`/projects/...`, types `dev.trainlet.*`) starts runs and is believed, so nobody else may
say it. TRAINLET_EVENT_SOURCES says which sources a project may use: `team-a=s3://a-*,github/*;team-b=*`. Who is not named
may use any.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from trainlet.core import envelopes
from trainlet.core.errors import AccessError, UserError
from trainlet.core.events import Event

OWN_SOURCE = "/projects/"
OWN_TYPE = envelopes.OWN_TYPE
VARIABLE = "TRAINLET_EVENT_SOURCES"


def check(project: str, events: Iterable[Event]) -> None:
    """Raise AccessError for an event from outside whose source or type it may not have."""
    allowed = allowed_to(project)
    for event in events:
        if event.source.startswith(OWN_SOURCE) or event.type.startswith(OWN_TYPE):
            raise AccessError(
                f"The event {event.id!r} says that it is of the platform itself (source {event.source!r}, type "
                f"{event.type!r}). Sources {OWN_SOURCE}... and types {OWN_TYPE}... are reserved; choose names of your own."
            )
        if allowed is not None and not fits(event.source, allowed):
            raise AccessError(
                f"Project {project!r} may not use events of the source {event.source!r}: its administrator allows "
                f"{', '.join(allowed) or 'none'} ({VARIABLE})."
            )


def check_source(project: str, source: str) -> None:
    """Raise AccessError for a source that a subscription of this project would wait for in vain."""
    allowed = allowed_to(project)
    if allowed is not None and not source.startswith(OWN_SOURCE) and not fits(source, allowed):
        raise AccessError(
            f"Project {project!r} may not use events of the source {source!r}: its administrator allows "
            f"{', '.join(allowed) or 'none'} ({VARIABLE})."
        )


def allowed_to(project: str) -> list[str] | None:
    """Return the patterns of sources that a project may use; None: any."""
    for rule in os.environ.get(VARIABLE, "").split(";"):
        name, _, patterns = rule.partition("=")
        if name.strip() == project:
            return [one.strip() for one in patterns.split(",") if one.strip()]
    return None


def fits(source: str, patterns: Sequence[str]) -> bool:
    """Say whether a source is one of the patterns, or begins like one that ends with `*`."""
    return any(source.startswith(one[:-1]) if one.endswith("*") else source == one for one in patterns)


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise UserError for a pattern that is not what it looks like."""
    for one in patterns:
        if "*" in one[:-1]:
            raise UserError(f"{one!r} is no pattern of sources: a `*` may only be its last character.")
