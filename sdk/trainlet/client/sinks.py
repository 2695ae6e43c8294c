"""The client's calls about sinks: `/v1/sinks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlet.core import wire
from trainlet.core.sinks import (
    LetterState,
    LetterView,
    Replayed,
    SinkAnswer,
    SinkCreate,
    SinkReplay,
    SinkRotate,
    SinkSecret,
    SinkView,
)

if TYPE_CHECKING:
    from trainlet.client.http import Client


class Sinks:
    """What a client can say about where events are sent to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, asked: SinkCreate) -> SinkSecret:
        """Have events sent to an address; the reply is the only place where its secret is shown."""
        return self._client._call("POST", "/v1/sinks", SinkSecret, asked)

    def all(self) -> list[SinkView]:
        """Return the sinks of the project."""
        return [SinkView.model_validate(item) for item in self._client._call("GET", "/v1/sinks", wire.Page).items]

    def remove(self, name: str) -> None:
        """Remove a sink with what waits for it."""
        self._client._call("DELETE", f"/v1/sinks/{name}", wire.Page)

    def rotate(self, name: str, grace_s: float) -> SinkSecret:
        """Give a sink a new secret; what is sent is signed with both for `grace_s` more."""
        return self._client._call("POST", f"/v1/sinks/{name}:rotate", SinkSecret, SinkRotate(grace_s=grace_s))

    def resume(self, name: str) -> SinkView:
        """Send again at once to a sink that was paused or rests."""
        return self._client._call("POST", f"/v1/sinks/{name}:resume", SinkView)

    def test(self, name: str) -> SinkAnswer:
        """Send a test now and return what the sink answers."""
        return self._client._call("POST", f"/v1/sinks/{name}:test", SinkAnswer)

    def replay(self, name: str, letters: list[int] | None) -> int:
        """Send dead letters once more, these or all; returns how many."""
        body = SinkReplay(letters=letters)
        return self._client._call("POST", f"/v1/sinks/{name}:replay", Replayed, body).letters

    def letters(self, name: str, state: LetterState, limit: int) -> list[LetterView]:
        """Return what is on its way to a sink, was delivered lately, or is dead; the newest first."""
        params = {"state": state, "limit": limit}
        page = self._client._call("GET", f"/v1/sinks/{name}/letters", wire.Page, params=params)
        return [LetterView.model_validate(item) for item in page.items]
