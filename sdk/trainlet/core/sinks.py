"""Sinks, as data: where a project has the platform's events sent to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlet.core.models import Reply, Request
from trainlet.core.specs import Name

TypePattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.*_-]{1,200}$")]
LetterState = Literal["waiting", "delivered", "dead"]


class SinkCreate(Request):
    """`POST /v1/sinks`. `types`: which events; one may end with `*`, and `dev.trainlet.` may be left out. Empty: all."""

    url: str = Field(min_length=1, max_length=2000)
    name: Name | None = None
    types: list[TypePattern] = Field(default=[], max_length=100)


class SinkView(Reply):
    """A sink. `reason` says why nothing is sent, or why the last delivery failed."""

    name: Name
    url: str
    types: list[str] = []
    state: Literal["active", "paused"]
    reason: str = ""
    created_at: str
    last_delivered_at: str | None = None
    next_at: str | None = None
    waiting: int = 0
    dead: int = 0


class SinkSecret(Reply):
    """A sink with the secret that signs what is sent to it: this is the only time that it is shown."""

    sink: SinkView
    secret: str


class SinkRotate(Request):
    """`POST /v1/sinks/{name}:rotate`: a new secret; what is sent has signatures of both for `grace_s` more."""

    grace_s: float = Field(default=24 * 3600.0, ge=0, le=30 * 24 * 3600)


class SinkReplay(Request):
    """`POST /v1/sinks/{name}:replay`: send dead letters once more: these, or all."""

    letters: list[int] | None = Field(default=None, max_length=1000)


class Replayed(Reply):
    """How many letters are sent once more."""

    letters: int


class LetterView(Reply):
    """One event on its way to one sink."""

    number: int
    event: str
    type: str
    subject: str
    state: LetterState
    tries: int
    reason: str = ""
    created_at: str
    next_at: str | None = None


class SinkAnswer(Reply):
    """What a sink said to `POST /v1/sinks/{name}:test`; `status` is None when it could not be reached."""

    good: bool
    status: int | None = None
    reason: str = ""
    took_ms: int
