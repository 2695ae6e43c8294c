"""The dashboard: what runs, why it waits, what it costs. Server-rendered pages that work without scripts.

A browser gets in by `/?token=...` once; the token moves into a cookie that scripts cannot read, and out of the URL.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, redirect, render_template_string, request
from werkzeug.wrappers import Response as BaseResponse

from trainlet.core import wire
from trainlet.core.clocks import rfc3339
from trainlet.core.errors import AccessError
from trainlet_functions import curves
from trainlet_functions.api import pages
from trainlet_functions.api.routes import identity
from trainlet_functions.billing import reports
from trainlet_functions.platform import Platform
from trainlet_functions.state import logs, metrics, occupancy, runs, tasks, tokens
from trainlet_functions.state.tokens import Identity

LOG_LINES = 500


def install(app: Flask, platform: Platform) -> None:
    """Add the pages."""
    app.jinja_env.filters["money"] = pages.money
    app.jinja_env.filters["clock"] = pages.clock
    app.jinja_env.filters["span"] = lambda start, end: pages.span(
        start, end or rfc3339(platform.database.clock.wall_ns())
    )

    @app.get("/")
    def home() -> BaseResponse | str:
        token = request.args.get("token")
        if token is not None:
            with platform.database.read() as tx:
                tokens.verify(tx, token)
            answer = redirect("/", code=303)
            answer.set_cookie("trainlet", token, httponly=True, samesite="Strict", max_age=30 * 24 * 3600)
            return answer
        who = _visitor(platform)
        if who is None:
            return Response(_page("trainlet", pages.LOCKED), 401)
        with platform.database.read() as tx:
            found = [wire.RunView.model_validate(item) for item in runs.list_(tx, who.project, limit=100).items]
            spent = {run.id: reports.usage(tx, who.project, run_id=run.id) for run in found}
        return _page("runs", pages.RUNS, 5, runs=found, spent=spent, project=who.project)

    @app.get("/runs/<run_id>")
    def one_run(run_id: str) -> BaseResponse | str:
        who = _visitor(platform)
        if who is None:
            return redirect("/")
        with platform.database.read() as tx:
            run = runs.get(tx, who.project, run_id)
            found = runs.changes(tx, who.project, run_id, 0).tasks
            usage = reports.usage(tx, who.project, run_id=run_id)
            lines = logs.last(tx, run_id, limit=LOG_LINES, store=platform.store)
            history = {task.key: tasks.timeline(tx, who.project, task.key) for task in found}
            went = {task.key: metrics.history(tx, who.project, task.key).metrics for task in found if task.metrics}
        drawn = {key: "".join(curves.charts(points)) for key, points in went.items()}
        per_task = {task.key: pages.Spent.of(usage, task.key) for task in found}
        ordered = sorted(found, key=lambda task: task.created_at)
        shown = {
            "run": run,
            "tasks": ordered,
            "usage": usage,
            "spent": per_task,
            "lines": lines,
            "history": history,
            "curves": drawn,
        }
        return _page(run.id, pages.RUN, 3 if run.state == "running" else None, **shown)

    @app.get("/queue")
    def queue() -> BaseResponse | str:
        who = _visitor(platform)
        if who is None:
            return redirect("/")
        with platform.database.read() as tx:
            found = occupancy.look(tx, who.project)
            free_known = tx.capacity.owns_devices
        return _page("queue and devices", pages.QUEUE, 3, found=found, free_known=free_known)

    @app.get("/runs/<run_id>/cancel")
    def ask_to_cancel(run_id: str) -> BaseResponse | str:
        who = _visitor(platform)
        if who is None:
            return redirect("/")
        with platform.database.read() as tx:
            run = runs.get(tx, who.project, run_id)
        return _page(f"cancel {run.id}", pages.CANCEL, run=run)

    @app.post("/runs/<run_id>/cancel")
    def cancel(run_id: str) -> BaseResponse:
        who = _visitor(platform, by_form=True)
        if who is None:
            return redirect("/", code=303)
        with platform.database.write() as tx:
            runs.cancel(tx, who.project, run_id, "cancelled on the dashboard")
        return redirect(f"/runs/{run_id}", code=303)


def _page(title: str, template: str, refresh_s: int | None = None, **shown: Any) -> str:
    body = render_template_string(template, **shown)
    return render_template_string(pages.PAGE, body=body, title=title, refresh=refresh_s)


def _visitor(platform: Platform, *, by_form: bool = False) -> Identity | None:
    """Return who looks. A form counts only from a page of ours: the cookie alone is no proof that a person sent it."""
    try:
        if by_form:
            found = platform.identify(request.cookies.get("trainlet", ""))
            _require_own_page()
        else:
            found = identity(platform)
        found.require("client")
    except AccessError:
        return None
    return found


def _require_own_page() -> None:
    """Raise AccessError for a form that another site sent (its cookie is strict, and old browsers ignore that)."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "same-origin")
    if site != "same-origin" or (origin is not None and urlsplit(origin).netloc != request.host):
        raise AccessError("This form came from another site.")
