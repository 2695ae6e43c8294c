"""`/v1/hooks`: addresses for senders without a token, and `/v1/projects/{project}/hooks/{adapter}`, where they post to."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from trainlet.core import wire
from trainlet.core.hooks import CLOUDEVENTS, HookCreate, HookRotate, HookSecret
from trainlet.core.triggers import Accepted
from trainlet_functions.api.events import answer, read
from trainlet_functions.api.problems import Unauthorized
from trainlet_functions.api.routes import Routes, project
from trainlet_functions.platform import Platform
from trainlet_functions.triggers import acceptance, adapters, hooks, sns, sources, webhooks

routes = Routes()
_TAKEN: dict[str, Any] = {"reply": Accepted, "statuses": (202,)}


@routes.add("POST", "/v1/hooks", body=HookCreate, reply=HookSecret, statuses=(201,))
def create(platform: Platform, body: HookCreate) -> tuple[HookSecret, int]:
    """Make a hook; its secret is shown this once."""
    with platform.database.write() as tx:
        return hooks.create(tx, platform.signer, project(), body), 201


@routes.add("GET", "/v1/hooks", reply=wire.Page)
def list_hooks(platform: Platform) -> wire.Page:
    """List the hooks of the project."""
    with platform.database.read() as tx:
        return wire.Page(items=[view.model_dump(mode="json") for view in hooks.list_(tx, project())])


@routes.add("POST", "/v1/hooks/{adapter}/{scheme}:rotate", body=HookRotate, reply=HookSecret)
def rotate(platform: Platform, adapter: str, scheme: str, body: HookRotate) -> HookSecret:
    """Give a hook a new secret; the one before is good for a while yet."""
    with platform.database.write() as tx:
        return hooks.rotate(tx, platform.signer, project(), adapter, scheme, body.grace_s)


@routes.add("DELETE", "/v1/hooks/{adapter}/{scheme}", reply=wire.Page)
def remove(platform: Platform, adapter: str, scheme: str) -> wire.Page:
    """Remove a hook: its senders are refused from now on."""
    with platform.database.write() as tx:
        hooks.remove(tx, project(), adapter, scheme)
    return wire.Page(items=[f"{adapter} {scheme}"])


@routes.add("POST", "/v1/projects/{project}/hooks/{adapter}", "public", **_TAKEN)
def take(platform: Platform, project: str, adapter: str) -> tuple[Accepted, int] | Response:
    """Take in what a hook's sender posts, which its headers show to have the hook's secret."""
    return _take(platform, project, adapter, None)


@routes.add("POST", "/v1/projects/{project}/hooks/{adapter}/{secret}", "public", **_TAKEN)
def take_by_url(platform: Platform, project: str, adapter: str, secret: str) -> tuple[Accepted, int] | Response:
    """Take in what a sender posts that can only be given a URL: the secret is the end of it."""
    return _take(platform, project, adapter, secret)


def _take(platform: Platform, owner: str, adapter: str, given: str | None) -> tuple[Accepted, int] | Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    body = request.get_data()
    try:
        with platform.database.read() as tx:
            scheme = hooks.admit(tx, platform.signer, owner, adapter, headers, body, given=given)
            topics = hooks.topics(tx, owner, adapter) if scheme == "sns" else []
            now_s = tx.now_ns / 1e9
        if scheme == "sns":
            sns.check(topics, platform.certificates, body, now_s)  # may fetch: not inside of a transaction
    except webhooks.Refused as refused:
        raise Unauthorized(
            f"The hook {adapter} of project {owner!r} does not take this: {refused}. `trainlet hook ls` lists the hooks "
            "that there are, `trainlet hook rotate` shows a new secret."
        ) from None
    found = read(headers, body) if adapter == CLOUDEVENTS else adapters.convert(adapter, headers, body)
    sources.check(owner, found)
    with platform.database.write() as tx:
        hooks.used(tx, owner, adapter, scheme, found)
        taken = acceptance.accept(tx, owner, found, platform.matcher, identified=adapter != CLOUDEVENTS)
    return answer(found, taken)
