"""The client's calls about hooks: `/v1/hooks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlet.core import wire
from trainlet.core.hooks import HookCreate, HookRotate, HookSecret, HookView

if TYPE_CHECKING:
    from trainlet.client.http import Client


class Hooks:
    """What a client can say about the addresses of senders without a token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, asked: HookCreate) -> HookSecret:
        """Make a hook; the reply is the only place where its secret is shown."""
        return self._client._call("POST", "/v1/hooks", HookSecret, asked)

    def all(self) -> list[HookView]:
        """Return the hooks of the project."""
        return [HookView.model_validate(item) for item in self._client._call("GET", "/v1/hooks", wire.Page).items]

    def rotate(self, adapter: str, scheme: str, grace_s: float) -> HookSecret:
        """Give a hook a new secret; the one before is good for `grace_s` more."""
        body = HookRotate(grace_s=grace_s)
        return self._client._call("POST", f"/v1/hooks/{adapter}/{scheme}:rotate", HookSecret, body)

    def remove(self, adapter: str, scheme: str) -> None:
        """Remove a hook."""
        self._client._call("DELETE", f"/v1/hooks/{adapter}/{scheme}", wire.Page)
