"""The way of wake-ups into Knative: an HTTP POST to the broker of the project.

A broker may answer only after its subscribers did, and a cold start takes minutes. So a wait that ends here says nothing
about the event: it is sent again, and a worker that hears it twice claims once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx

from trainlet.core.errors import PlatformError
from trainlet_knative.objects import FUNCTION_EXTENSION
from trainlet_knative.tokens import OwnTokens

_LATER = frozenset({408, 409, 425, 429, 503})
_HINTS = {
    404: "Create the Broker in the project's namespace, or correct the broker URL.",
    401: "It checks who sends: set oidc: true in cluster.yaml and run trainlet install.",
    403: "Its EventPolicy does not let the training API in: trainlet install --project {project} makes one that does.",
    413: "The event is too large for the broker.",
}


class BrokerSink:
    """Delivers to the broker of a project, whose URL `url_of` tells.

    With `tokens` each event carries one that was made for that broker, whose audience `audience_of` tells.
    """

    def __init__(
        self,
        url_of: Callable[[str], str],
        *,
        audience_of: Callable[[str], str] | None = None,
        tokens: OwnTokens | None = None,
        timeout_s: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._url_of = url_of
        self._audience_of = audience_of
        self._tokens = tokens
        self._http = http or httpx.Client(timeout=timeout_s, trust_env=False)

    def deliver(self, headers: Mapping[str, str], body: bytes, project: str, function: str) -> bool:
        """Send one event. True: the broker has it; False: it is busy; PlatformError: it refused, or was not reached."""
        url = self._url_of(project)
        sent = {**headers, f"ce-{FUNCTION_EXTENSION}": function}
        audience = None if self._audience_of is None else self._audience_of(project)
        if self._tokens is not None and audience is not None:
            sent["Authorization"] = f"Bearer {self._tokens.get(audience)}"
        try:
            response = self._http.post(url, content=body, headers=sent)
        except httpx.TransportError as error:
            raise PlatformError(f"The broker {url} was not reached: {type(error).__name__} {error}.") from error
        if response.is_success:
            return True
        if response.status_code in _LATER:
            return False
        if response.status_code == 401 and self._tokens is not None and audience is not None:
            self._tokens.forget(audience)
        hint = _HINTS.get(response.status_code, "It is tried again; look at the broker's own log.").format(
            project=project
        )
        raise PlatformError(f"The broker {url} answered {response.status_code}: {response.text[:200]!r}. {hint}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
