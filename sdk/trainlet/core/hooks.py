"""Hooks, as data: addresses for senders that cannot hold a token of the project, each with a secret of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlet.core.models import Reply, Request

Scheme = Literal["hmac", "standard", "mlflow", "bearer", "url", "sns"]
SourcePattern = Annotated[str, StringConstraints(min_length=1, max_length=500)]
DEFAULT_GRACE_S = 24 * 3600.0
CLOUDEVENTS = "cloudevents"
"""The adapter of a hook that takes CloudEvents as they are."""


class HookCreate(Request):
    """`POST /v1/hooks`. `scheme` is how the sender shows that it has the secret; left out, what such senders can do.

    `sources`: the only sources that events of this hook may have; a pattern may end with `*`. None: any.
    `topics`: of the scheme sns, and only of it, the ARNs of the topics whose messages are taken.
    """

    adapter: str = Field(min_length=1, max_length=50)
    scheme: Scheme | None = None
    sources: list[SourcePattern] = Field(default=[], max_length=100)
    topics: list[SourcePattern] = Field(default=[], max_length=20)


class HookRotate(Request):
    """`POST /v1/hooks/{adapter}/{scheme}:rotate`: a new secret; the one before is good for `grace_s` more."""

    grace_s: float = Field(default=DEFAULT_GRACE_S, ge=0, le=30 * 24 * 3600)


class HookView(Reply):
    """A hook. `path` is where the sender posts to, without the secret that the schemes `url` and `sns` put behind it."""

    adapter: str
    scheme: Scheme
    path: str
    generation: int
    sources: list[str] = []
    topics: list[str] = []
    created_at: str
    previous_until: str | None = None
    last_used_at: str | None = None


class HookSecret(Reply):
    """A hook with its secret: this is the only time that it is shown. `path` is whole."""

    hook: HookView
    secret: str
    path: str
