"""The way of wake-ups into Knative: an HTTP POST to the broker of the project.

A broker may answer only after its subscribers did, and a cold start takes minutes. So a wait that ends here says nothing
about the event: it is sent again, and a worker that hears it twice claims once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx

from trainlet.core.errors import PlatformError
from trainlet_knative.objects import FUNCTION_EXTENSION

_LATER = frozenset({408, 409, 425, 429, 503})
_HINTS = {
    404: "Create the Broker in the project's namespace, or correct the broker URL.",
    401: "Give the training API an identity that the Broker's EventPolicy accepts.",
    403: "Give the training API an identity that the Broker's EventPolicy accepts.",
    413: "The event is too large for the broker.",
}


class BrokerSink:
    """Delivers to the broker of a project, whose URL `url_of` tells."""

    def __init__(
        self, url_of: Callable[[str], str], *, timeout_s: float = 30.0, http: httpx.Client | None = None
    ) -> None:
        self._url_of = url_of
        self._http = http or httpx.Client(timeout=timeout_s, trust_env=False)

    def deliver(self, headers: Mapping[str, str], body: bytes, project: str, function: str) -> bool:
        """Send one event. True: the broker has it; False: it is busy; PlatformError: it refused, or was not reached."""
        url = self._url_of(project)
        try:
            response = self._http.post(url, content=body, headers={**headers, f"ce-{FUNCTION_EXTENSION}": function})
        except httpx.TransportError as error:
            raise PlatformError(f"The broker {url} was not reached: {type(error).__name__} {error}.") from error
        if response.is_success:
            return True
        if response.status_code in _LATER:
            return False
        hint = _HINTS.get(response.status_code, "It is tried again; look at the broker's own log.")
        raise PlatformError(f"The broker {url} answered {response.status_code}: {response.text[:200]!r}. {hint}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
