"""The Flask application: every resource, bounded bodies, problems instead of stack traces."""

from __future__ import annotations

import json

from flask import Flask, Response, request

from trainlet.core import wire
from trainlet_functions.api import (
    access,
    attempts,
    billing,
    brokered,
    budgets,
    dashboard,
    events,
    functions,
    hooks,
    logs,
    metrics,
    problems,
    runs,
    service,
    sinks,
    triggers,
    usage,
)
from trainlet_functions.api.routes import Routes
from trainlet_functions.platform import Platform

RESOURCES = (
    service, access, metrics, functions, runs, attempts, logs, events, hooks, brokered, triggers, sinks, usage, billing,
    budgets,
)  # fmt: skip


def create_app(platform: Platform) -> Flask:
    """Build the application on a platform."""
    app = Flask("trainlet", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = platform.settings.limits.body_bytes
    app.url_map.strict_slashes = False
    problems.install(app)
    metrics.install(app)
    table = Routes()
    for resource in RESOURCES:
        table.items.extend(resource.routes.items)
    table.install(app, platform)
    description = json.dumps(service.openapi(table.items))

    @app.get("/openapi.json")
    def openapi() -> Response:
        return Response(description, content_type="application/json")

    dashboard.install(app, platform)

    @app.before_request
    def note_request() -> None:
        if request.path not in ("/healthz", "/readyz", "/metrics"):
            platform.touch()

    @app.after_request
    def stamp(response: Response) -> Response:
        response.headers[wire.PROTOCOL_HEADER] = str(wire.PROTOCOL)
        response.headers["X-Content-Type-Options"] = "nosniff"
        if platform.database.trouble:
            response.headers[wire.WARNING_HEADER] = ascii(" ".join(platform.database.trouble.split()))[1:-1]
        return response

    return app
