"""`/v1/sinks`: where a project has the platform's events sent to, and what of them waits or is dead."""

from __future__ import annotations

from typing import Any, cast

from trainlet.core import wire
from trainlet.core.errors import UserError
from trainlet.core.sinks import (
    LetterState,
    Replayed,
    SinkAnswer,
    SinkCreate,
    SinkReplay,
    SinkRotate,
    SinkSecret,
    SinkView,
)
from trainlet_functions.api.routes import Query, Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.sinks import letters, registry

routes = Routes()
_STATES = ("waiting", "delivered", "dead")
_LETTERS: dict[str, Any] = {
    "reply": wire.Page,
    "query": (Query("state"), Query("cursor", "integer"), Query("limit", "integer", minimum=1, maximum=500)),
}


@routes.add("POST", "/v1/sinks", body=SinkCreate, reply=SinkSecret, statuses=(201,))
def create(platform: Platform, body: SinkCreate) -> tuple[SinkSecret, int]:
    """Have events sent to an address; the secret that signs them is shown this once."""
    platform.courier.check(project(), body.url)
    with platform.database.write() as tx:
        return registry.create(tx, platform.signer, project(), body), 201


@routes.add("GET", "/v1/sinks", reply=wire.Page)
def list_sinks(platform: Platform) -> wire.Page:
    """List the sinks of the project."""
    with platform.database.read() as tx:
        return wire.Page(items=[view.model_dump(mode="json") for view in registry.list_(tx, project())])


@routes.add("GET", "/v1/sinks/{name}", reply=SinkView)
def get(platform: Platform, name: str) -> SinkView:
    """Return a sink with what waits for it."""
    with platform.database.read() as tx:
        return registry.view(tx, registry.row(tx, project(), name))


@routes.add("DELETE", "/v1/sinks/{name}", reply=wire.Page)
def remove(platform: Platform, name: str) -> wire.Page:
    """Remove a sink with what waits for it."""
    with platform.database.write() as tx:
        registry.remove(tx, project(), name)
    return wire.Page(items=[name])


@routes.add("POST", "/v1/sinks/{name}:rotate", body=SinkRotate, reply=SinkSecret)
def rotate(platform: Platform, name: str, body: SinkRotate) -> SinkSecret:
    """Give a sink a new secret; for a while events are signed with both."""
    with platform.database.write() as tx:
        return registry.rotate(tx, platform.signer, project(), name, body.grace_s)


@routes.add("POST", "/v1/sinks/{name}:resume", reply=SinkView)
def resume(platform: Platform, name: str) -> SinkView:
    """Send again at once to a sink that was paused, or that rests after failures."""
    with platform.database.write() as tx:
        return registry.resume(tx, project(), name)


@routes.add("POST", "/v1/sinks/{name}:test", reply=SinkAnswer)
def test(platform: Platform, name: str) -> SinkAnswer:
    """Send a test to a sink now, and return what it answers."""
    with platform.database.read() as tx:
        found = registry.row(tx, project(), name)
    return platform.courier.probe(found)


@routes.add("POST", "/v1/sinks/{name}:replay", body=SinkReplay, reply=Replayed)
def replay(platform: Platform, name: str, body: SinkReplay) -> Replayed:
    """Send dead letters once more."""
    with platform.database.write() as tx:
        registry.row(tx, project(), name)
        return Replayed(letters=letters.replay(tx, project(), name, body.letters))


@routes.add("GET", "/v1/sinks/{name}/letters", **_LETTERS)
def list_letters(platform: Platform, name: str, state: str | None, cursor: int | None, limit: int | None) -> wire.Page:
    """List what is on its way to a sink, was delivered lately, or is dead; the newest first."""
    if (state or "dead") not in _STATES:
        raise UserError(f"?state={state} is none of {', '.join(_STATES)}.")
    most = limit or 50
    with platform.database.read() as tx:
        registry.row(tx, project(), name)
        found = letters.list_(tx, project(), name, cast(LetterState, state or "dead"), cursor, most + 1)
    more = str(found[most - 1].number) if len(found) > most else None
    return wire.Page(items=[view.model_dump(mode="json") for view in found[:most]], next=more)
