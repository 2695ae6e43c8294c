"""The route table: each endpoint says what it takes and gives, and the same table makes Flask routes and OpenAPI."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec

from flask import Flask, Response, g, has_request_context, request
from pydantic import BaseModel, ValidationError

from trainlet.core import wire
from trainlet.core.errors import AccessError, UserError
from trainlet_functions.api.problems import Unauthorized, WrongProtocol
from trainlet_functions.platform import Platform
from trainlet_functions.state import tokens
from trainlet_functions.state.database import wait_until
from trainlet_knative.reviews import UnknownNamespace

P = ParamSpec("P")
Access = Literal["public", "events", "client", "admin", "worker", "attempt"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter."""

    name: str
    kind: Literal["integer", "number", "string"] = "string"
    description: str = ""
    minimum: float | None = None
    maximum: float | None = None

    @property
    def least(self) -> float | None:
        """Return the smallest value; an integer must fit into the database."""
        return -(2**63) if self.minimum is None and self.kind == "integer" else self.minimum

    @property
    def most(self) -> float | None:
        """Return the largest value; an integer must fit into the database."""
        return 2**63 - 1 if self.maximum is None and self.kind == "integer" else self.maximum


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    summary: str
    access: Access
    body: type[BaseModel] | None = None
    reply: type[BaseModel] | None = None
    query: tuple[Query, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media: str = "application/json"


@dataclass(slots=True)
class Routes:
    """Collects the endpoints of the resource modules."""

    items: list[Route] = field(default_factory=list)

    def add(
        self, method: str, path: str, access: Access = "client", **options: Any
    ) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
        """Register an endpoint; its docstring's first line is its summary."""

        def register(endpoint: Callable[P, Any]) -> Callable[P, Any]:
            summary = (endpoint.__doc__ or endpoint.__name__).splitlines()[0]
            self.items.append(Route(method, path, endpoint, summary, access, **options))
            return endpoint

        return register

    def install(self, app: Flask, platform: Platform) -> None:
        """Make Flask routes of the table."""
        for route in self.items:
            rule = route.path.replace("{epoch}", "<int:epoch>").replace("{", "<").replace("}", ">")
            name = f"{route.method} {route.path}"
            app.add_url_rule(rule, name, functools.partial(_serve, platform, route), methods=[route.method])


def _serve(platform: Platform, route: Route, **path: Any) -> Response:
    """Check protocol, token, query and body; call the endpoint; make a response of what it returns."""
    _check_protocol()
    if route.access in ("events", "client", "admin", "worker"):
        g.identity = identity(platform)
        if route.access == "events" and "client" in g.identity.scopes:
            pass  # who may do everything in the project may bring events, too
        elif route.access != "worker":
            g.identity.require(route.access)
    for name, value in path.items():
        if isinstance(value, str):
            _check_key(name, value)
    arguments: dict[str, Any] = dict(path)
    for query in route.query:
        arguments[query.name] = _read_query(query)
    if route.body is not None:
        arguments["body"] = _read_body(route.body)
    result = route.endpoint(platform, **arguments)
    if isinstance(result, Response):
        return result
    status = 200
    if isinstance(result, tuple):
        result, status = result
    if isinstance(result, BaseModel):
        return Response(result.model_dump_json(), status, content_type="application/json")
    return Response(json.dumps(result), status, content_type="application/json")


def _check_protocol() -> None:
    theirs = request.headers.get(wire.PROTOCOL_HEADER)
    if theirs is not None and theirs != str(wire.PROTOCOL):
        older = theirs.isdecimal() and int(theirs[:9]) < wire.PROTOCOL
        raise WrongProtocol(
            f"You speak protocol {theirs[:20]}, this training API speaks {wire.PROTOCOL}. "
            f"Update {'trainlet where you call from' if older else 'the training API'}."
        )


def _check_key(name: str, value: str) -> None:
    import re

    from trainlet.core.specs import KEY_PATTERN, NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN if name == "name" else KEY_PATTERN, value):
        raise UserError(f"{value!r} is not a valid {name}.")


def about_request() -> dict[str, Any]:
    """Return which run, task and epoch the request names that is answered now, for the log."""
    found = request.view_args or {} if has_request_context() else {}
    about = {"run": found.get("run_id"), "task": found.get("task") or found.get("key"), "epoch": found.get("epoch")}
    return {name: value for name, value in about.items() if value is not None}


def bearer() -> str:
    """Return the token of the request; raises Unauthorized when there is none."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthorized("Send 'Authorization: Bearer TOKEN'. The embedded platform's token is in platform.json.")
    return token.strip()


def identity(platform: Platform) -> tokens.Identity:
    """Return who is calling, by bearer token or by the dashboard's cookie."""
    cookie = (
        request.cookies.get("trainlet") if "Authorization" not in request.headers and request.method == "GET" else None
    )
    token = cookie or bearer()
    try:
        return platform.identify(token)
    except UnknownNamespace:
        raise  # somebody known, who may not
    except AccessError as error:
        raise Unauthorized(str(error)) from error


def project() -> str:
    """Return the caller's project."""
    return str(g.identity.project)


def _read_query(query: Query) -> Any:
    text = request.args.get(query.name)
    if text is None or text == "":
        return None
    try:
        value: Any = {"integer": int, "number": float, "string": str}[query.kind](text)
    except ValueError as error:
        raise UserError(f"?{query.name}={text!r} is not a valid {query.kind}.") from error
    if query.kind != "string" and not (
        (query.least is None or value >= query.least) and (query.most is None or value <= query.most)
    ):
        raise UserError(f"?{query.name}={text} is out of range ({query.least} to {query.most}).")
    return value


def _read_body(model: type[BaseModel]) -> BaseModel:
    raw = request.get_data()
    try:
        return model.model_validate_json(raw or b"{}")
    except ValidationError:
        raise
    except ValueError as error:
        raise UserError(f"The body is not valid JSON: {error}") from error


def poll(platform: Platform, wait_s: float | None) -> Iterator[int]:
    """Yield now and after each change until the caller's patience ends."""
    return wait_until(platform.database, time.monotonic() + min(wait_s or 0.0, 30.0))
