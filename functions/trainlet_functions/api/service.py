"""What the service says about itself: `/v1`, health, and its own description."""

from __future__ import annotations

import importlib.metadata
import os
import platform as machine
from typing import Any

import sqlalchemy as sa

from trainlet.core import wire
from trainlet_functions.api.routes import Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.state import devices

routes = Routes()


@routes.add("GET", "/v1", reply=wire.ServiceInfo)
def info(platform: Platform) -> wire.ServiceInfo:
    """Return what this API is, where its store is, and what its workers have installed."""
    with platform.database.read() as tx:
        found = devices.listed(tx)
    return wire.ServiceInfo(
        version=importlib.metadata.version("trainlet"),
        protocol=wire.PROTOCOL,
        project=project(),
        store_url=platform.store.url,
        embedded=platform.embedded,
        pid=os.getpid(),
        python=machine.python_version(),
        packages=platform.packages(),
        devices=found,
    )


@routes.add("GET", "/healthz", "public")
def healthz(platform: Platform) -> dict[str, str]:
    """Say that the process answers."""
    return {"status": "ok"}


@routes.add("GET", "/readyz", "public", statuses=(200, 503))
def readyz(platform: Platform) -> tuple[dict[str, str], int]:
    """Say whether the database answers and the process is not stopping."""
    if platform.closing.is_set():
        return {"status": "stopping"}, 503
    with platform.database.read() as tx:
        tx.conn.execute(sa.select(1))
    return {"status": "ready"}, 200


def openapi(items: list[Any]) -> dict[str, Any]:
    """Describe the routes as OpenAPI 3.1; the same table makes the routes, so the two cannot differ."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in items:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    _reference(wire.Problem, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "trainlet training API", "version": importlib.metadata.version("trainlet")},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    import re

    from trainlet.core.specs import KEY_PATTERN, NAME_PATTERN

    parameters: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", route.path):
        kind: dict[str, Any] = {"type": "string", "pattern": NAME_PATTERN if name == "name" else KEY_PATTERN}
        if name == "epoch":
            kind = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
        parameters.append({"name": name, "in": "path", "required": True, "schema": kind})
    for query in route.query:
        limits = {"minimum": query.least, "maximum": query.most}
        kind = {"type": query.kind, **{key: value for key, value in limits.items() if value is not None}}
        parameters.append({"name": query.name, "in": "query", "schema": kind})
    problem = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    responses: dict[str, Any] = {"default": {"description": "A problem", **problem}}
    for status in route.statuses:
        content = {} if route.reply is None else {"schema": _reference(route.reply, schemas)}
        body = {} if status == 204 else {"content": {route.media: content}}
        responses[str(status)] = {"description": "Done", **body}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.endpoint.__module__.rsplit(".", 1)[-1] + "_" + route.endpoint.__name__,
        "parameters": parameters,
        "responses": responses,
    }
    if route.access != "public":
        operation["security"] = [{"token": []}]
    if route.body is not None:
        schema = _reference(route.body, schemas)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _reference(model: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    described = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, part in described.pop("$defs", {}).items():
        schemas.setdefault(name, part)
    schemas.setdefault(model.__name__, described)
    return {"$ref": f"#/components/schemas/{model.__name__}"}
