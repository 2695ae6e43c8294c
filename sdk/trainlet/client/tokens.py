"""The token that a client brings: a text, or a file that somebody renews, as Kubernetes does for a pod."""

from __future__ import annotations

from pathlib import Path

import httpx

from trainlet.client.errors import ApiUnreachable


class Bearer:
    """Adds the token to a request, unless the call brings one of its own. It knows no client: that must be forgettable."""

    def __init__(self, given: str | Path | None) -> None:
        self.given = given

    def __call__(self, request: httpx.Request) -> httpx.Request:
        token = None if "Authorization" in request.headers else self.token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def token(self) -> str | None:
        """Return the token of now; raises ApiUnreachable when its file cannot be read."""
        if not isinstance(self.given, Path):
            return self.given
        try:
            return self.given.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiUnreachable(
                f"The token for the training API cannot be read from {self.given}: {error}. Is it mounted into this pod?"
            ) from error
