"""Webhooks of GitHub: the event's name and action are the type, the payload is the data.

GitHub's signature is over the body alone, so the id follows from the body too: whoever sends a body again, GitHub or
somebody who listened, with whatever headers, sends the same event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from trainlet.core import events
from trainlet.core.errors import UserError
from trainlet.core.events import Event
from trainlet_functions.triggers.adapters import shapes

WHAT = "webhook of GitHub"
PREFIX = "com.github."
_FORM = "application/x-www-form-urlencoded"


def convert(headers: Mapping[str, str], body: bytes) -> list[Event]:
    """Return its one event, or none for a ping; raises UserError."""
    kind = shapes.word(headers.get("x-github-event", ""))
    if not kind:
        raise UserError(f"This is no {WHAT}: it has no header X-GitHub-Event.")
    if headers.get("content-type", "").lower().startswith(_FORM):
        body = parse_qs(body.decode("utf-8", "replace")).get("payload", [""])[0].encode()
    form = shapes.loads(body, WHAT)
    if not isinstance(form, dict):
        raise UserError(f"This is no {WHAT}: its payload is no JSON object.")
    if kind == "ping":
        return []
    action = form.get("action")
    delivery = headers.get("x-github-delivery")
    made = events.make(
        PREFIX + (f"{kind}.{shapes.word(action)}" if isinstance(action, str) and shapes.word(action) else kind),
        shapes.text(_source(form)) or "https://github.com",
        shapes.identity(form),
        form,
        subject=shapes.text(_subject(form)),
        githubdelivery=shapes.text(delivery, 200),
    )
    return [made]


def _source(form: dict[str, Any]) -> Any:
    for owner in ("repository", "organization", "sender"):
        about = form.get(owner)
        if isinstance(about, dict) and (about.get("html_url") or about.get("url")):
            return about.get("html_url") or about.get("url")
    return None


def _subject(form: dict[str, Any]) -> Any:
    """Return what it is about: the ref, the number, or the name of the first thing that has one."""
    for outer, inner in (
        ("pull_request", "number"),
        ("issue", "number"),
        ("release", "tag_name"),
        ("workflow_run", "name"),
        ("package", "name"),
    ):
        about = form.get(outer)
        if isinstance(about, dict) and about.get(inner):
            return about[inner]
    return form.get("ref")
