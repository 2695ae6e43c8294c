"""`/v1/functions`: what is deployed, and running it once."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from flask import request

from trainlet.core import bundles, traces, wire
from trainlet.core.errors import PlatformError, UserError
from trainlet.core.models import sha256_hex
from trainlet.core.specs import FunctionSpec
from trainlet_functions.api.routes import Query, Routes, poll, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import functions, tasks

routes = Routes()


@routes.add("PUT", "/v1/functions/{name}", body=FunctionSpec, reply=wire.FunctionView)
def put(platform: Platform, name: str, body: FunctionSpec) -> wire.FunctionView:
    """Register a version of a function; its bundle must be in the store and have the digest it is named by."""
    if body.name != name:
        raise UserError(f"The URL names {name!r} and the body {body.name!r}; make them equal.")
    try:
        data = platform.store.get(bundles.bundle_key(body.bundle))
    except FileNotFoundError:
        raise UserError(f"The store has no bundle {body.bundle[:12]}; upload it before registering {name!r}.") from None
    found = bundles.digest_of(data)
    if found != body.bundle:
        raise UserError(f"The bundle {body.bundle[:12]} in the store has the content {found[:12]}; upload it again.")
    with platform.database.write() as tx:
        view = functions.register(tx, project(), body)
    platform.backend.apply(project(), body)
    return view


@routes.add("GET", "/v1/functions/{name}", reply=wire.FunctionView, query=(Query("digest"),))
def get(platform: Platform, name: str, digest: str | None) -> wire.FunctionView:
    """Return a function: a version by digest, else the newest."""
    with platform.database.read() as tx:
        view = functions.get(tx, project(), name, digest)
    return view.model_copy(update={"deployment": _deployments(platform, [name]).get(name)})


@routes.add(
    "GET",
    "/v1/functions",
    reply=wire.Page,
    query=(Query("cursor"), Query("limit", "integer", minimum=1, maximum=500)),
)
def list_(platform: Platform, cursor: str | None, limit: int | None) -> wire.Page:
    """List functions by name."""
    with platform.database.read() as tx:
        page = functions.list_(tx, project(), cursor, limit or 100)
    found = _deployments(platform, [item["name"] for item in page.items])
    for item in page.items:
        if (deployment := found.get(item["name"])) is not None:
            item["deployment"] = deployment.model_dump(mode="json")
    return page


def _deployments(platform: Platform, names: list[str]) -> Mapping[str, wire.Deployment]:
    """Return what the backend knows of these functions; that it cannot be asked is worth knowing too."""
    try:
        found = platform.backend.status(project(), names[0] if len(names) == 1 else None)
    except PlatformError as error:
        return dict.fromkeys(names, wire.Deployment(ready=False, reason=f"not known: {error}"))
    if all(one.cold_start for one in found.values()):
        return found
    with platform.database.read() as tx:
        known = functions.cold_starts(tx, project())
    return {
        name: one if one.cold_start else one.model_copy(update={"cold_start": known.get(name, {})})
        for name, one in found.items()
    }


@routes.add("POST", "/v1/functions/{name}:invoke", body=wire.Invoke, reply=wire.TaskView, statuses=(200, 202))
def invoke(platform: Platform, name: str, body: wire.Invoke) -> tuple[wire.TaskView, int]:
    """Run a function once. `Prefer: wait=N` waits for the result; `Idempotency-Key` makes a repeat harmless."""
    wait = re.search(r"wait=(\d+(?:\.\d+)?)", request.headers.get("Prefer", ""))
    key = request.headers.get("Idempotency-Key")
    suffix = sha256_hex(f"{project()}/{name}/{key}".encode())[:16] if key else secrets.token_hex(6)
    with platform.database.write() as tx:
        digest = body.digest or functions.get(tx, project(), name).digest
        run_id = f"{name}-{suffix}"
        task = wire.TaskCreate(
            run_id=run_id, node=name, function=name, digest=digest, args=body.args, labels=body.labels
        )
        trace = traces.parse(request.headers.get(traces.HEADER))
        view, _ = tasks.create(tx, project(), f"{run_id}.{name}", task, trace)
    for _ in poll(platform, float(wait[1]) if wait else 0.0):
        with platform.database.read() as tx:
            view = tasks.get(tx, project(), view.key)
        if view.state in wire.TERMINAL:
            return view, 200
    return view, 202
