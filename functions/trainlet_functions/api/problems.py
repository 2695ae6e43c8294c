"""Errors as `application/problem+json` (RFC 9457): what happened, and what to do next."""

from __future__ import annotations

import logging
from typing import Any

from flask import Flask, Response
from pydantic import ValidationError
from sqlalchemy.exc import DataError
from werkzeug.exceptions import HTTPException

from trainlet.core import errors, wire
from trainlet_functions.state.problems import FencedAttempt, Taken, TooManyWaiting

_LOG = logging.getLogger(__name__)
PREFIX = "urn:trainlet:problem:"

KINDS: dict[type[Exception], tuple[int, str, str]] = {
    FencedAttempt: (409, "fenced", "The attempt is not the current one"),
    Taken: (409, "taken", "The task is taken"),
    TooManyWaiting: (429, "too-many", "Too many events wait"),
    errors.ConflictError: (409, "conflict", "Used before with other content"),
    errors.NotFoundError: (404, "not-found", "Not found"),
    errors.AccessError: (403, "forbidden", "Not allowed"),
    errors.UserError: (422, "invalid", "The request cannot be done"),
    errors.PlatformError: (503, "internal", "The platform failed"),
}


class Unauthorized(errors.AccessError):
    """Raised when there is no valid token at all (HTTP 401)."""


class WrongProtocol(errors.UserError):
    """Raised when the caller speaks another protocol version (HTTP 426)."""


def problem(status: int, slug: str, title: str, detail: str, hint: str = "", **headers: str) -> Response:
    """Build a problem response."""
    body = wire.Problem(type=PREFIX + slug, title=title, status=status, detail=detail, hint=hint)
    response = Response(body.model_dump_json(), status, content_type="application/problem+json")
    response.headers.update(headers)
    return response


def validation(error: ValidationError) -> Response:
    """Name the fields that are wrong, the first ones only."""
    parts = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in error.errors()[:5]]
    return problem(
        422, "invalid", "The request is not valid", "; ".join(parts), "See /openapi.json for what is expected."
    )


def install(app: Flask) -> None:
    """Turn every exception into a problem."""

    @app.errorhandler(Exception)
    def handle(error: Exception) -> Response:
        if isinstance(error, ValidationError):
            return validation(error)
        if isinstance(error, Unauthorized):
            headers: dict[str, Any] = {"WWW-Authenticate": 'Bearer realm="trainlet"'}
            return problem(401, "unauthorized", "A token is needed", str(error), **headers)
        if isinstance(error, WrongProtocol):
            return problem(426, "protocol", "Another protocol version", str(error))
        if isinstance(error, DataError):  # PostgreSQL's columns are narrower than JSON; SQLite's take it
            return problem(
                422, "invalid", "The request is not valid", f"The database cannot hold a value of it: {error.orig}"
            )
        for kind, (status, slug, title) in KINDS.items():
            if isinstance(error, kind):
                return problem(status, slug, title, str(error))
        if isinstance(error, HTTPException):
            slug = {404: "not-found", 413: "too-large", 405: "method"}.get(error.code or 500, "invalid")
            return problem(error.code or 500, slug, error.name, error.description or "")
        _LOG.exception("unexpected error")
        return problem(500, "internal", "The platform failed", f"{type(error).__name__}: {error}", "See platform.log.")
